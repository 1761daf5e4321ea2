"""Effectively-once producers: sequence ids, and what a topic holds of a producer."""
