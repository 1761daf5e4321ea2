"""Settings of the unit tests: hypothesis has no deadlines, because a busy machine is not a defect.

Sixty examples find 96 % of the mutants of the pure cores; see `tests/mutants/README.md`.
"""

from hypothesis import settings

settings.register_profile("untimed", deadline=None, max_examples=60)
settings.load_profile("untimed")
