"""Shared fixtures of all tests: pytest's own for plugins, the fault programs, and a Ctrl-C that raises."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

_FAULTS = Path(__file__).parent / "faults"


@pytest.fixture(scope="module")
def fault_module():
    """Return a function that imports a module of `tests/faults` by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(_FAULTS))
        patch.delenv("PYTHONSAFEPATH", raising=False)  # the programs start others of their folder, which import from it
        yield importlib.import_module
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").parent == _FAULTS:
            del sys.modules[name]


@pytest.fixture
def _ctrl_c_raises():
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)
