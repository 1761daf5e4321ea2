"""What the unit tests share: hypothesis sets no deadlines, for a busy machine is not a fault.

Sixty examples are what finds 96 % of the mutants of the pure cores; see `tests/mutants/README.md`.
"""

from hypothesis import settings

settings.register_profile("untimed", deadline=None, max_examples=60)
settings.load_profile("untimed")
