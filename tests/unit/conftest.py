"""What the unit tests share: hypothesis sets no deadlines, for a busy machine is not a fault."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
