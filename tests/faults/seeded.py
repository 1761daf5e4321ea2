"""A seed for all randomness of a fault program and of the processes that it starts."""

from __future__ import annotations

import argparse
import os
import random
import sys
from typing import Any

__all__ = ["SeededParser", "seed_child"]

_VARIABLE = "PULSAR_EXT_FAULTS_SEED"


class SeededParser(argparse.ArgumentParser):
    """A parser with the option `--seed`; parsing seeds `random`, and prints the seed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_argument("--seed", type=int, help="seed of all randomness; drawn and printed by default")

    def parse_args(self, *arguments: Any, **options: Any) -> Any:
        """Parse the command line, and seed `random`."""
        parsed = super().parse_args(*arguments, **options)
        if parsed.seed is None:
            parsed.seed = random.SystemRandom().randrange(2**32)
        print(f"--seed {parsed.seed}", file=sys.stderr, flush=True)
        os.environ[_VARIABLE] = str(parsed.seed)
        random.seed(parsed.seed)
        return parsed


def seed_child() -> None:
    """Seed a process that the program started, by the program's seed and by its own arguments."""
    random.seed(f"{os.environ.get(_VARIABLE)} {sys.argv[1:]}")
