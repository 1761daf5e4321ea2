"""Counting and skipping messages of a subscription, and the message id N messages later."""
