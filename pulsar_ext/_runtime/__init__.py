"""Services that run beside the application: timers, and the guard of its callbacks."""
