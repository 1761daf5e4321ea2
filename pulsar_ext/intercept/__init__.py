"""Interceptors: the application's code before a message is sent or delivered, and after its outcome."""
