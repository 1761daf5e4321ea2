"""What runs beside the application: timers, and the guard around its callbacks."""
