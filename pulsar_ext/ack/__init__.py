"""Acknowledgements: collected, grouped, sent, repeated after a disconnection, and confirmed."""
