"""The small faults that mutation tests put into the package."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_fault_has_its_place():
    """The text that a fault replaces is in its file once, and each mutated core exists."""
    faults = tomllib.loads((ROOT / "tests/mutants/shells.toml").read_text())
    cores = tomllib.loads((ROOT / "tests/mutants/cores.toml").read_text())
    assert (len(faults) >= 60, [core for core in cores if not (ROOT / f"pulsar_ext/{core}.py").exists()]) == (True, [])
    texts = {name: (ROOT / "pulsar_ext" / fault["file"]).read_text() for name, fault in faults.items()}
    assert [name for name, text in texts.items() if text.count(faults[name]["old"]) != 1] == []
