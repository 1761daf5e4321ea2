"""Senders: turn messages into entries and report the outcomes of sends."""
