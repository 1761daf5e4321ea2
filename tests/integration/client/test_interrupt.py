"""The program of tests/faults that interrupts every public method finds nothing at a few points."""

from __future__ import annotations

import itertools

import pytest

pytestmark = pytest.mark.standalone_only("runs a program of tests/faults, which takes no certificates", ways=("mtls",))

_KINDS = ("raise", "send", "raise", "close")
_FOUND = {
    "locks of conditions": ("Consumer.receive: queue of 0", "raise", 0),
    "receive_many() loses received messages": ("Consumer.receive_many", "raise", 0),
    "the acknowledgements' lock": ("Consumer.acknowledge: in runs", "raise", 0),
    "a chunked message before its thread": ("Producer.send_async: deduplicated in chunks/send_async big", "raise", 0),
    "a batch registered too early": ("Producer.send_many: deduplicated/send_many", "raise", 60),
    "a group closed twice": ("Producer.send: deduplicated/send", "send", 0),
    "an interrupted close of a producer": ("Producer.close: batched/close", "raise", 25),
    "an interrupted close of partitions": ("Producer.close: partitioned/close", "raise", 25),
    "an interrupted close of a client": ("Client.close", "raise", 15),
    "a consumer without an owner": ("Client.subscribe: subscribe shared", "raise", 80),
    "a cancelled create_producer()": ("asyncio.Client.create_producer: create_producer", "raise", 8),
    "an awaited batch of a closed client": ("asyncio.Consumer.batch_receive: batch_receive", "close client", 20),
    "a close inside a send": ("Producer.send_async: deduplicated in chunks/send_async", "close", 20),
    "a lock of outcomes": ("Producer.send_many: direct/send_many", "close client", 0),
    "a message of a group after its receive": ("GroupReader.read_next", "raise", 0),
    "a batch before its filter": ("RangeConsumer.batch_receive: ranges", "raise", 40),
    "a block that never ends": ("Consumer.ack_scope", "raise", 60),
}
"""Fixed defects: a case, a kind of handler, and the number of points (0: all)."""


@pytest.fixture(scope="module")
def faults(fault_module):
    """Return the program as a module."""
    return fault_module("interrupt")


def test_interrupted_methods_lose_nothing(faults, pulsar_broker_factory):
    """Every method is interrupted at three points by handlers that raise, send or close, without a finding.

    Handlers of awaited methods only raise: the findings of one that closes depend on the load of the machine.
    """
    broker = pulsar_broker_factory("dedup")
    methods = {case.method: name for name, case in reversed(faults.CASES.items())}
    turns = zip(methods.values(), itertools.cycle(_KINDS), strict=False)
    jobs = [(name, "raise" if name.startswith("asyncio.") else kind) for name, kind in turns]
    runs = faults.run_all((broker.service_url, broker.admin_url), jobs, most=3)
    assert [(one.name, one.kind, one.findings) for one in runs if one.findings] == []
    assert sum(one.arrived for one in runs) > len(jobs)


@pytest.mark.parametrize("found", _FOUND)
def test_fixed_defects_stay_fixed(faults, pulsar_broker_factory, found):
    """Each point of a call that once lost something or hung has no finding."""
    broker = pulsar_broker_factory("dedup")
    name, kind, most = _FOUND[found]
    (run,) = faults.run_all((broker.service_url, broker.admin_url), [(name, kind)], most=most)
    assert run.arrived
    assert not run.findings
