"""Acknowledgements: grouping, sending, resending after a disconnection, and confirmation."""
