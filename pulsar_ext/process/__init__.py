"""Handlers of messages: several at a time, and an action for a message whose handler raised."""
