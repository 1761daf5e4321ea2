"""The binding's stub, by which mypy checks the package."""

import runpy
from pathlib import Path

TYPINGS = Path(__file__).parents[3] / "typings"


def test_stub_is_that_of_the_installed_binding():
    """The committed stub has every class and method of the official client that is installed."""
    printed = runpy.run_path(str(TYPINGS / "binding.py"))["stub"]()
    assert printed == (TYPINGS / "_pulsar.pyi").read_text()
