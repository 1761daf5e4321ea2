"""Reservation of ports by processes."""

import subprocess
import sys

import pytest

from pulsar_ext import testing
from pulsar_ext.errors import BrokerStartError, InvalidUse
from pulsar_ext.testing import ports

_ASK = """
import sys
from pulsar_ext.testing import ports
port = int(sys.argv[1])
ports._PORTS = range(port, port + 1)
print(ports.free_port())
"""


ALONE = range(14_900, 14_910)
"""Ports below the range of the harness, so that no other test uses them."""


def _ask(port):
    """Let another process choose from one port only."""
    return subprocess.run(
        [sys.executable, "-c", _ASK, str(port)], capture_output=True, text=True, check=False, timeout=60
    )


def test_reserved_port_is_not_free_for_another_process(monkeypatch):
    """A port that this process reserved is not free for another one, although nothing listens on it."""
    reserved, other = [*filter(ports.is_free, ALONE[:5])][:2]
    monkeypatch.setattr(ports, "_PORTS", range(reserved, reserved + 1))
    assert ports.free_port() == reserved
    assert _ask(other).stdout == f"{other}\n"
    answer = _ask(reserved)
    assert (answer.stdout, "no port between" in answer.stderr) == ("", True)


def test_port_is_reused_only_if_no_other_is_free(monkeypatch):
    """Each of two ports is returned once before one is reused; a port in use or taken is never returned."""
    first = next(port for port in ALONE[5:] if ports.is_free(port) and ports.is_free(port + 1))
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 2))
    assert {ports.free_port(), ports.free_port()} == {first, first + 1}
    assert ports.free_port() in {first, first + 1}
    assert ports.free_port(taken={first}) == first + 1
    with pytest.raises(BrokerStartError, match="no port between"):
        ports.free_port(taken={first, first + 1})


def test_ports_work_without_a_writable_directory(monkeypatch, tmp_path):
    """Without a directory for the locks, ports are still returned."""
    monkeypatch.setattr(ports, "_reservations", ports._reservations.__wrapped__)
    monkeypatch.setattr(ports.tempfile, "gettempdir", lambda: str(tmp_path / "absent"))
    assert ports.is_free(ports.free_port())


@pytest.mark.parametrize(("asked", "words"), [((99_999, None), "got 99999"), ((None, -1), "got -1"), ((7, 7), "7 for")])
@pytest.mark.parametrize("kind", ["PulsarProcess", "PulsarContainer"])
def test_invalid_ports_raise(kind, asked, words):
    """Invalid ports raise before anything is started, in both back ends."""
    with pytest.raises(InvalidUse, match=words):
        getattr(testing, kind)(broker_port=asked[0], admin_port=asked[1])
