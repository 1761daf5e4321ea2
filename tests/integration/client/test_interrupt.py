"""The program that interrupts every public method anywhere, with few points: it runs, and finds nothing."""

from __future__ import annotations

import itertools

import pytest

pytestmark = pytest.mark.standalone_only("runs a program of tests/faults, which takes no certificates", ways=("mtls",))

_KINDS = ("raise", "send", "raise", "close")
_FOUND = {
    "locks of conditions": ("Consumer.receive: queue of 0", "raise", 0),
    "receive_many() forgets what it had": ("Consumer.receive_many", "raise", 0),
    "the acknowledgements' lock": ("Consumer.acknowledge: in runs", "raise", 0),
    "a message in chunks before its thread": ("Producer.send_async: deduplicated in chunks/send_async big", "raise", 0),
    "a batch noted before its time": ("Producer.send_many: deduplicated/send_many", "raise", 60),
    "a group closed twice": ("Producer.send: deduplicated/send", "send", 0),
    "an interrupted close of a producer": ("Producer.close: batched/close", "raise", 25),
    "an interrupted close of partitions": ("Producer.close: partitioned/close", "raise", 25),
    "an interrupted close of a client": ("Client.close", "raise", 15),
    "a consumer that nobody has": ("Client.subscribe: subscribe shared", "raise", 80),
    "a cancelled create_producer()": ("asyncio.Client.create_producer: create_producer", "raise", 8),
    "an awaited batch of a closed client": ("asyncio.Consumer.batch_receive: batch_receive", "close client", 20),
    "a close inside a send": ("Producer.send_async: deduplicated in chunks/send_async", "close", 20),
    "a lock of outcomes": ("Producer.send_many: direct/send_many", "close client", 0),
    "a message of a group behind its receive": ("GroupReader.read_next", "raise", 0),
    "a batch before its filter": ("RangeConsumer.batch_receive: ranges", "raise", 40),
    "a block that never ends": ("Consumer.ack_scope", "raise", 60),
}
"""What was found and mended, and where: a case, a kind of handler, and how many points (0: all)."""


@pytest.fixture(scope="module")
def faults(fault_module):
    """The program as a module."""
    return fault_module("interrupt")


def test_no_method_loses_anything_to_a_signal(faults, pulsar_broker_factory):
    """One way of each method, at three points, with handlers that raise, send and close by turns: no finding.

    Handlers of awaited methods raise: what one that closes finds depends on how busy the machine is.
    """
    broker = pulsar_broker_factory("dedup")
    methods = {case.method: name for name, case in reversed(faults.CASES.items())}
    turns = zip(methods.values(), itertools.cycle(_KINDS), strict=False)
    jobs = [(name, "raise" if name.startswith("asyncio.") else kind) for name, kind in turns]
    runs = faults.run_all((broker.service_url, broker.admin_url), jobs, most=3)
    assert [(one.name, one.kind, one.findings) for one in runs if one.findings] == []
    assert sum(one.arrived for one in runs) > len(jobs)


@pytest.mark.parametrize("found", _FOUND)
def test_what_was_found_is_not_found_again(faults, pulsar_broker_factory, found):
    """The points of one call where a signal once lost something, or hung."""
    broker = pulsar_broker_factory("dedup")
    name, kind, most = _FOUND[found]
    (run,) = faults.run_all((broker.service_url, broker.admin_url), [(name, kind)], most=most)
    assert run.arrived
    assert not run.findings
