"""A request to the admin API that a Ctrl-C interrupts leaves nothing behind that another one waits for."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

from pulsar_ext import PulsarAdmin


@pytest.fixture(scope="module")
def points():
    """The module that has a signal arrive at one point of a call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "faults"))
        import interrupt_points  # noqa: PLC0415  # beside the programs of faults

        yield interrupt_points
        sys.modules.pop("interrupt_points")


@pytest.fixture
def _raising():
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("_raising")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
def test_the_next_request_is_answered(points, pulsar_broker_factory):
    """Interrupted wherever the HTTP client takes or lets go of a lock: another thread's next request is answered."""
    broker = pulsar_broker_factory("small-chunks")
    with PulsarAdmin(broker.admin_url) as admin:

        def ask():
            return admin.clusters()

        ask()
        every, answer = points.points_of(ask)
        places = [(path, time) for path, time in every if "_synchronization" in path[0][0].co_filename]
        assert places
        for place in places:
            one = points.Interruption(place)
            one.make(ask)
            found = []
            thread = threading.Thread(target=lambda found=found: found.append(ask()), daemon=True)
            thread.start()
            thread.join(10)
            assert found == [answer], one.place
