"""Settings of the unit tests: hypothesis has no deadlines, because a busy machine is not a defect.

Sixty examples find 96 % of the mutants of the pure cores; see `tests/mutants/README.md`. They are the same ones in each
run, so that a run can be repeated; `--hypothesis-profile=search` draws others.
"""

from hypothesis import settings

settings.register_profile("untimed", deadline=None, max_examples=60, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("untimed")
