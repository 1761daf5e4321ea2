"""The operations, kind of messages and subscription of each run, determined by its number."""

from __future__ import annotations

import random
from itertools import combinations_with_replacement, product
from typing import Final

from acks_common import TYPES
from pairs_operations import OPERATIONS
from pairs_rig import SHAPES, Case

__all__ = ["PAIRS", "case_of"]

PAIRS: Final = list(combinations_with_replacement(OPERATIONS, 2))
random.Random(0).shuffle(PAIRS)
_KINDS: Final = list(product(SHAPES, TYPES))


def case_of(seed: int) -> Case:
    """Return the run of a number: each round has each pair once, and each pair gets another kind each round."""
    round_, place = divmod(seed, len(PAIRS))
    kinds = random.Random(place).sample(_KINDS, len(_KINDS))
    shape, type_name = kinds[round_ % len(kinds)]
    first, second = random.Random(seed).sample(PAIRS[place], 2)
    return Case(seed, shape, type_name, first, second)
