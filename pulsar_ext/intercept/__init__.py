"""Interceptors: the application's code before a message is sent, before it is handed out, and behind what follows."""
