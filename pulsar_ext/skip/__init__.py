"""Counting and skipping messages of a subscription, and the id of the message N messages later."""
