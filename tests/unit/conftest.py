"""What the unit tests share: hypothesis asserts no time, for a busy machine is not a fault."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
