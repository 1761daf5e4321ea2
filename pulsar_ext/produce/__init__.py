"""Senders: how messages become entries, and how outcomes are reported."""
