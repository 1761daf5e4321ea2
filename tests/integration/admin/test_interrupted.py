"""A Ctrl-C during a request to the admin API does not block later requests."""

from __future__ import annotations

import threading

import pytest

from pulsar_ext import PulsarAdmin


@pytest.fixture(scope="module")
def points(fault_module):
    """Return the module that raises a signal at one point of a call."""
    return fault_module("interrupt_points")


@pytest.mark.usefixtures("_ctrl_c_raises")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
def test_request_after_ctrl_c_is_answered(points, pulsar_broker_factory):
    """Another thread's request is answered after a Ctrl-C at any point where the HTTP client uses a lock."""
    broker = pulsar_broker_factory("small-chunks")
    with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:

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
