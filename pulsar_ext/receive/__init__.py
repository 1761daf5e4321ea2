"""Receiving: sources of messages, the loops over them, and the owner of what was received."""
