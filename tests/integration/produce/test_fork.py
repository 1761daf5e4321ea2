"""Producers of every kind across a fork: they raise in the child, and work in the parent."""

from __future__ import annotations

from collections import Counter

import pytest
from stored import read

BATCHED = "batching_enabled=True, batching_max_publish_delay_ms=60_000"
KINDS = {
    "direct": ("", 0),
    "direct to partitions": ("", 3),
    "chunked": ("chunking_enabled=True, block_if_queue_full=True", 0),
    "batched": (BATCHED, 0),
    "batched by key": (f"{BATCHED}, batching_type=pulsar.BatchingType.KeyBased", 0),
    "partitions": (BATCHED, 3),
    "dedup": ("deduplication=True", 0),
    "dedup, batched": (f"deduplication=True, {BATCHED}", 0),
    "dedup, partitions": (f"deduplication=True, {BATCHED}", 3),
    "dedup, chunked": ("deduplication=True, chunking_enabled=True", 0),
}

PREPARE = """
import contextlib
outcomes = []
def report(number):
    return lambda result, _: outcomes.append((number, result.name))
def check_all_raise():
    signal.alarm(60)  # ends a child that hangs
    uses = {
        "send": lambda: producer.send(b"lost"), "send_async": lambda: producer.send_async(b"lost", report(-1)),
        "send_async without a callback": lambda: producer.send_async(b"lost", None),
        "send_async with a key": lambda: producer.send_async(b"lost", report(-1), partition_key="k"),
        "send_many": lambda: producer.send_many([b"lost"]), "flush": producer.flush, "close": producer.close,
        "is_connected": producer.is_connected, "create": lambda: client.create_producer(topic),
        "close the client": client.close, "shut down": client.shutdown,
        "send after shutdown": lambda: producer.send(b"lost"),
    }
    kept = len(outcomes)
    for name, use in uses.items():
        try:
            use()
        except pulsar.ForkedClientError:
            continue
        except pulsar.AlreadyClosed:
            if name == "send after shutdown":
                continue
            raise
        print("did not raise:", name, flush=True)
        os._exit(1)
    if len(outcomes) != kept:
        os._exit(2)
    sys.exit(7)
"""


@pytest.fixture
def broker(pulsar_broker_factory):
    """A broker that deduplicates every topic."""
    return pulsar_broker_factory("dedup")


@pytest.fixture
def forked(program, pulsar_topic_factory, broker):
    """Return a function that runs a program with a producer of a kind, and returns its output and topic."""

    def run(kind, source):
        settings, partitions = KINDS[kind]
        topic = pulsar_topic_factory(broker=broker, partitions=partitions)
        prepared = f"""
topic = {topic!r}
client = connect()
producer = client.create_producer(topic, producer_name="p", {settings})
"""
        result = program(PREPARE + prepared + source)
        assert result.returncode == 0, result.stderr
        return result.stdout.split(), topic

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_every_call_in_a_forked_child_raises(forked, client, kind):
    """Each call raises ForkedClientError in the child, the child exits, and the parent is not affected."""
    printed, topic = forked(
        kind,
        """
for number in range(5):
    producer.send_async(b"%d" % number, report(number))
if not (child := os.fork()):
    check_all_raise()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for number in range(5, 10):
    producer.send_async(b"%d" % number, report(number))
producer.flush()
client.close()
print(sorted(outcomes) == [(number, "Ok") for number in range(10)])
""",
    )
    assert printed == ["7", "True"]
    assert sorted(int(message.data()) for message in read(client, topic, 10)) == list(range(10))


@pytest.mark.parametrize("kind", KINDS)
def test_fork_during_sends_of_another_thread(forked, client, kind):
    """Ten children forked while a thread sends raise, and no message of the thread is lost or duplicated."""
    printed, topic = forked(
        kind,
        """
stop, sent = threading.Event(), []
def send():
    while not stop.is_set() and len(sent) < 20_000:
        if len(outcomes) + 500 < len(sent):
            producer.flush()
        sent.append(None)
        producer.send_async(b"%d" % (len(sent) - 1), report(len(sent) - 1))
thread = threading.Thread(target=send)
thread.start()
for _ in range(10):
    time.sleep(0.01)
    if not (child := os.fork()):
        check_all_raise()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 7:
        print("status", status)
stop.set()
thread.join()
producer.flush()
client.close()
print(len(sent), sorted(outcomes) == [(number, "Ok") for number in range(len(sent))])
""",
    )
    count, whole = printed
    assert whole == "True"
    found = Counter(int(message.data()) for message in read(client, topic, int(count)))
    assert found == Counter(range(int(count)))


def test_child_forked_during_a_close_exits(forked):
    """A child forked while another thread closes the client over a frozen connection exits."""
    printed, _ = forked(
        "batched",
        """
with reach.proxy() as proxy:
    client = connect(proxy.service_url, operation_timeout_seconds=3)
    producer = client.create_producer(topic, batching_enabled=True, send_timeout_millis=0)
    proxy.pause()
    producer.send_async(b"x", report(0))
    thread = threading.Thread(target=lambda: contextlib.suppress(pulsar.PulsarException).__enter__() or client.close())
    thread.start()
    time.sleep(0.2)
    if not (child := os.fork()):
        signal.alarm(60)
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    thread.join()
print(outcomes)
""",
    )
    assert "7" in printed
    assert "[(0, 'AlreadyClosed')]" in " ".join(printed)  # between lines of the C++ client's log
