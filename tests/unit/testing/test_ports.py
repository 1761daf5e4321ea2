"""Which ports are given to whom."""

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
"""Ports below those that the harness chooses from, so that no other test has one of them."""


def _ask(port):
    """Have another process choose from that port alone."""
    return subprocess.run(
        [sys.executable, "-c", _ASK, str(port)], capture_output=True, text=True, check=False, timeout=60
    )


def test_another_process_is_not_given_what_one_was_given(monkeypatch):
    """Nothing listens on either port; the one that this process was given is refused elsewhere, the other is not."""
    given, other = [*filter(ports.is_free, ALONE[:5])][:2]
    monkeypatch.setattr(ports, "_PORTS", range(given, given + 1))
    assert ports.free_port() == given
    assert _ask(other).stdout == f"{other}\n"
    refused = _ask(given)
    assert (refused.stdout, "no port between" in refused.stderr) == ("", True)


def test_a_port_is_given_again_where_no_other_is_free(monkeypatch):
    """Of two ports each is given once before one comes again; what listens, or is taken, is not given at all."""
    first = next(port for port in ALONE[5:] if ports.is_free(port) and ports.is_free(port + 1))
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 2))
    assert {ports.free_port(), ports.free_port()} == {first, first + 1}
    assert ports.free_port() in {first, first + 1}
    assert ports.free_port(taken={first}) == first + 1
    with pytest.raises(BrokerStartError, match="no port between"):
        ports.free_port(taken={first, first + 1})


def test_where_nothing_can_be_locked_a_port_is_as_free_as_it_looks(monkeypatch, tmp_path):
    """A directory that is not there keeps nobody from a port."""
    monkeypatch.setattr(ports, "_reservations", ports._reservations.__wrapped__)
    monkeypatch.setattr(ports.tempfile, "gettempdir", lambda: str(tmp_path / "absent"))
    assert ports.is_free(ports.free_port())


@pytest.mark.parametrize(("asked", "words"), [((99_999, None), "got 99999"), ((None, -1), "got -1"), ((7, 7), "7 for")])
@pytest.mark.parametrize("kind", ["PulsarProcess", "PulsarContainer"])
def test_ports_that_cannot_be_are_refused(kind, asked, words):
    """Ports that no broker can have raise before anything is started, in both back ends."""
    with pytest.raises(InvalidUse, match=words):
        getattr(testing, kind)(broker_port=asked[0], admin_port=asked[1])
