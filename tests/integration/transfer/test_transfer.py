"""`pulsar-ext redrive` and `copy` send each message once, as it was, whatever kills them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from dataclasses import make_dataclass

import pytest
from chunked import THREE_CHUNKS, eventually, index_of, payload
from commands import call_command

import pulsar_ext as pulsar
from pulsar_ext.transfer import ORIGIN

pytestmark = pytest.mark.standalone_only("runs a command, which takes URLs", ways=("mtls", "cluster"))

Old, New = (make_dataclass("Order", [(name, str) for name in names]) for names in (("city", "name"), ("name", "city")))
EARLIEST = pulsar.InitialPosition.Earliest


def urls(broker):
    return ("--url", broker.service_url, "--admin-url", broker.admin_url)


def run(broker, *arguments):
    """Run a command with `--json`; return its result."""
    status, output, errors = call_command(*arguments, "--json", *urls(broker))
    assert status == 0, errors
    return json.loads(output)


def failure(broker, *arguments):
    """Run a command that fails; return its error."""
    status, output, errors = call_command(*arguments, *urls(broker))
    assert (status, output) == (1, "")
    return errors


def stored(client, topic):
    with client.read(topic) as reading:
        return list(reading)


def facts(message):
    """Return everything of a message that a copy keeps."""
    properties = {name: value for name, value in message.properties().items() if name != ORIGIN}
    inner = message.inner
    return (
        None if inner.has_null_value() else message.data(),
        message.partition_key(),
        message.ordering_key(),
        properties,
        message.event_timestamp(),
        inner.int_schema_version(),
    )


def send_letters(client, topic, dlq, count, **options):
    """Send batched letters of a topic, with keys."""
    with client.create_producer(dlq, batching_enabled=True, **options) as producer:
        producer.send_many(
            [payload(index, 20) for index in range(count)],
            partition_keys=[f"k{index % 7}" for index in range(count)],
            properties=[{"REAL_TOPIC": topic, "ORIGIN_MESSAGE_ID": f"1:{index}:-1"} for index in range(count)],
        )


@pytest.fixture
def dlq(client, admin, topic):
    """Return the dead letter topic of an existing topic."""
    admin.create_topic(topic)
    admin.create_topic(f"{topic}-DLQ")
    return f"{topic}-DLQ"


@pytest.mark.core(slow="opens a producer for each schema version and size, twice")
def test_letters_return_as_they_were(client, admin, broker, topic):
    """Redriven messages have the value, keys, properties, event time and schema version of the original ones."""
    policy = pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-DLQ")
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, dead_letter_policy=policy, enable_retry=True)
    with client.create_producer(topic, schema=Old, chunking_enabled=True) as producer:
        producer.send(Old("a", "b"), partition_key="k", ordering_key="o", properties={"a": "1"}, event_timestamp=5)
        producer.send(Old("c" * THREE_CHUNKS, "d"), partition_key="k")
    with client.create_producer(topic, schema=New) as producer:
        producer.send(New("e", "f"), properties={"b": "2"})
        producer.send(None, partition_key="gone")
    with client.create_producer(topic) as producer:
        producer.send(b"no schema")
    for _ in range(5):
        consumer.send_dead_letter(consumer.receive(20_000))
    consumer.close()
    originals = [facts(message) for message in stored(client, topic)]
    assert [one[-1] for one in originals] == [0, 0, 1, 1, -1]
    result = run(broker, "redrive", f"{topic}-DLQ")
    assert (result["found"], result["sent"], result["targets"]) == (5, 5, {topic: 5})
    copies = stored(client, topic)[5:]
    assert [facts(message) for message in copies] == originals
    assert copies[0].properties()[ORIGIN].startswith(f"{topic}-DLQ ")
    assert admin.stats(f"{topic}-DLQ").subscriptions["redrive"].backlog_entries == 0
    assert not [name for name in admin.subscriptions(topic) if name.startswith("pulsar-ext")]
    assert run(broker, "redrive", f"{topic}-DLQ")["found"] == 0


def start(broker, *arguments, url=None):
    addresses = ("--url", url or broker.service_url, "--admin-url", broker.admin_url)
    command = [sys.executable, "-c", "from pulsar_ext.cli import main; main()", *arguments, *addresses]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_while_sending(broker, admin, topic, rng, *arguments):
    """Run a command and kill it some time after its first copy; return False if it ended before."""
    before = admin.internal_stats(topic).raw["entriesAddedCounter"]
    with start(broker, *arguments) as process:
        while process.poll() is None:
            if admin.internal_stats(topic).raw["entriesAddedCounter"] > before:
                time.sleep(rng.random() * 0.05)
                process.kill()
                break
            time.sleep(0.001)
        errors = process.stderr.read()
    assert process.returncode in (0, -9), errors
    return process.returncode == -9


@pytest.mark.parametrize("deduplicates", [False, True])
def test_killed_redrives_send_each_letter_once(client, admin, request, broker, topic, deduplicates):
    """However often a redrive is killed, each letter is finally stored once, and in the order of its key."""
    if deduplicates:
        request.getfixturevalue("deduplicating")
    admin.create_topic(topic)
    dlq, count, rng = f"{topic}-DLQ", 20_000, random.Random(7)
    admin.create_subscription(dlq, "redrive", "earliest")
    send_letters(client, topic, dlq, count)
    kills = sum(kill_while_sending(broker, admin, topic, rng, "redrive", dlq) for _ in range(4))
    assert kills
    result = run(broker, "redrive", dlq)
    assert result["found"] == result["sent"] + result["already_sent"]
    found = [index_of(message) for message in stored(client, topic)]
    assert sorted(found) == [*range(count)]
    for key in range(7):
        of_key = [index for index in found if index % 7 == key]
        assert of_key == sorted(of_key)
    assert not [name for name in admin.subscriptions(topic) if name.startswith("pulsar-ext")]


def test_ctrl_c_ends_clean(client, admin, broker, topic, dlq):
    """After Ctrl-C the status is 130, and the next run sends the rest."""
    send_letters(client, topic, dlq, 20_000)
    with start(broker, "redrive", dlq) as process:
        assert eventually(lambda: admin.internal_stats(topic).number_of_entries > 0, 60)
        process.send_signal(2)
        output, errors = process.communicate()
    assert (process.returncode, "Traceback" in errors) in ((130, False), (0, False)), errors
    del output
    run(broker, "redrive", dlq)
    assert sorted(index_of(message) for message in stored(client, topic)) == [*range(20_000)]


def test_cut_connections_store_no_copy_twice(client, admin, broker, topic, dlq, pulsar_fault_proxy):
    """Without deduplication by the broker, a redrive whose connections are cut stores each letter once, by itself."""
    count, cuts, proxy = 20_000, 0, pulsar_fault_proxy(broker)
    send_letters(client, topic, dlq, count)
    with start(broker, "redrive", dlq, url=proxy.service_url) as process:
        while process.poll() is None:
            if admin.internal_stats(topic).number_of_entries > cuts and cuts < 5:
                cuts += bool(proxy.cut())
            time.sleep(0.02)
        assert (process.returncode, process.stderr.read()) == (0, "")
    assert cuts
    assert sorted(index_of(message) for message in stored(client, topic)) == [*range(count)]


def test_where_leaves_other_letters(client, admin, broker, topic, dlq):
    """Excluded letters stay in the backlog, and a dry run changes nothing."""
    with client.create_producer(dlq) as producer:
        for index in range(10):
            producer.send(b"%d" % index, properties={"REAL_TOPIC": topic, "even": str(index % 2 == 0)})
    chosen = ("--where", "[0-5]", "--property", "even=True")
    result = run(broker, "redrive", dlq, *chosen, "--dry-run")
    assert (result["found"], result["excluded"], result["sent"], result["targets"]) == (10, 7, 0, {topic: 3})
    assert admin.subscriptions(dlq) == ()
    assert stored(client, topic) == []
    assert run(broker, "redrive", dlq, *chosen)["sent"] == 3
    assert run(broker, "redrive", dlq)["sent"] == 7
    assert [int(message.data()) for message in stored(client, topic)] == [0, 2, 4, 1, 3, 5, 6, 7, 8, 9]


def test_letters_return_to_their_partition(client, admin, broker, topic):
    """Letters of a partition return to it, and those of its partitioned topic, in any spelling, to any partition."""
    admin.create_partitioned_topic(topic, 2)
    dlq, part = f"{topic}-DLQ", f"{topic}-partition-1"
    origins = [topic, part, topic.removeprefix("persistent://"), part] * 5
    with client.create_producer(dlq) as producer:
        for index, origin in enumerate(origins):
            producer.send(b"%d" % index, properties={"REAL_TOPIC": origin})
    assert run(broker, "redrive", dlq)["targets"] == {topic: 10, part: 10}
    assert {*range(1, 20, 2)} <= {int(message.data()) for message in stored(client, part)}
    assert sorted(int(message.data()) for message in stored(client, topic)) == [*range(20)]
    assert not admin.subscriptions(topic)


def test_partly_excluded_batch_raises(client, broker, topic, dlq):
    """A batch of which some messages are excluded cannot be acknowledged, so nothing is sent."""
    send_letters(client, topic, dlq, 10)
    assert "is acknowledged as a whole" in failure(broker, "redrive", dlq, "--where", "^1")
    assert stored(client, topic) == []


def test_invalid_transfers_change_nothing(client, admin, broker, topic, dlq):
    """An unknown topic, letters of unknown origin, a target that is the source and another consumer are errors."""
    other = f"{topic}-other"
    admin.create_topic(other)
    with client.create_producer(dlq) as producer:
        producer.send(b"good", properties={"REAL_TOPIC": topic})
        producer.send(b"bad")
    assert "no property REAL_TOPIC" in failure(broker, "redrive", dlq)
    assert "not found" in failure(broker, "redrive", f"{topic}-none").lower()
    assert "not found" in failure(broker, "redrive", dlq, "--to", f"{topic}-none").lower()
    assert "is the source" in failure(broker, "redrive", dlq, "--to", dlq)
    assert "is the source" in failure(broker, "copy", other, other)
    client.create_producer(other, schema=Old).send(Old("a", "b"))
    typed = f"{topic}-typed"
    client.create_producer(typed, schema=make_dataclass("Other", [("x", int)])).close()
    assert "Incompatible" in failure(broker, "copy", other, typed)
    assert (stored(client, topic), stored(client, typed)) == ([], [])
    client.subscribe(dlq, "redrive", initial_position=EARLIEST)
    assert "another transfer" in failure(broker, "redrive", dlq, "--to", topic)
    assert stored(client, topic) == []


def test_copy_continues(client, admin, broker, topic):
    """A copy keeps each message's partition, and a second run copies what has been stored since."""
    target = f"{topic}-copy"
    for name in (topic, target):
        admin.create_partitioned_topic(name, 2)
    with client.create_producer(topic, batching_enabled=True) as producer:
        producer.send_many([payload(index, 20) for index in range(100)])
        assert run(broker, "copy", topic, target)["sent"] == 100
        for part in range(2):
            names = [f"{name}-partition-{part}" for name in (topic, target)]
            assert len({tuple(map(index_of, stored(client, name))) for name in names}) == 1
        producer.send_many([payload(index, 20) for index in range(100, 120)])
    assert run(broker, "copy", topic, target, "--where", "^11")["sent"] == 10
    assert run(broker, "copy", topic, target)["found"] == 0
    there = ("--to-url", broker.service_url, "--to-admin-url", broker.admin_url)
    admin.create_topic(f"{topic}-there")
    assert run(broker, "copy", topic, f"{topic}-there", *there)["sent"] == 120
    assert "is the source" in failure(broker, "copy", topic, topic, *there)
    assert sorted(index_of(message) for message in stored(client, target)) == [*range(100), *range(110, 120)]


def test_large_messages_are_copied_whole(client, admin, broker, topic):
    """Chunked messages among others are copied whole and in order, also to a topic of fewer partitions."""
    admin.create_partitioned_topic(topic, 2)
    target = f"{topic}-copy"
    admin.create_topic(target)
    sizes = [20, THREE_CHUNKS, 20, 60_000, 20, THREE_CHUNKS, THREE_CHUNKS]
    with client.create_producer(topic, chunking_enabled=True) as producer:
        for index, size in enumerate(sizes):
            producer.send(payload(index, size), partition_key="k")
    assert run(broker, "copy", topic, target)["sent"] == len(sizes)
    assert [index_of(message) for message in stored(client, target)] == [*range(len(sizes))]
