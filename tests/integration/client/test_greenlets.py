"""Clients work in programs patched by gevent or eventlet, as with gunicorn, Celery and Locust."""

import importlib.util
import subprocess
import sys

import pytest
from programs import HANG_SECONDS, PREAMBLE
from reach import Reach

PATCH = {
    "gevent": "from gevent import monkey, sleep, spawn; monkey.patch_all()",
    "eventlet": "import eventlet; eventlet.monkey_patch(); from eventlet import sleep, spawn",
}
PROGRAM = """
def wait_for(*greenlets):
    for one in greenlets:
        getattr(one, "join", getattr(one, "wait", None))()

def fill(name, count=20, **options):
    producer = client.create_producer(name, **options)
    for number in range(count):
        producer.send(b"%d" % number, partition_key=str(number % 7))
    producer.close()

def consume():
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=50)
    fill(topic)
    first, *others = [consumer.receive(20_000) for _ in range(20)]
    consumer.negative_acknowledge(first)
    consumer.acknowledge_many(others)
    consumer.acknowledge(consumer.receive(20_000))
    consumer.flush_acks(confirm=True)
    consumer.seek(pulsar.MessageId.earliest)
    for number, _ in enumerate(consumer):
        if number == 19:
            break
    consumer.unsubscribe()

def listen():
    delivered = []
    consumer = client.subscribe(topic + "-listen", "s", message_listener=lambda _, message: delivered.append(message))
    fill(topic + "-listen")
    while len(delivered) < 20:
        sleep(0.01)

def send():
    consumer = client.subscribe(topic + "-send", "s")
    producer = client.create_producer(topic + "-send", batching_enabled=True)
    outcomes = []
    for number in range(100):
        producer.send_async(b"", lambda *outcome: outcomes.append(outcome))
    producer.flush()
    producer.send_many([b""] * 200)
    received = len(outcomes) - 100
    while received < 300:
        received += len(consumer.receive_many(100, 20_000))

def read():
    fill(topic + "-read")
    ranges = {"key_hash_ranges": [pulsar.KeyHashRange(0, 65535)]}
    for one, options in ((topic + "-read", {}), ([topic + "-read"], {}), (topic + "-read", ranges)):
        reader = client.create_reader(one, pulsar.MessageId.earliest, **options)
        for _ in range(20):
            reader.read_next(20_000)
        reader.close()
    view = client.create_table_view(topic + "-read")
    assert len(view) == 7
    view.close()
    assert client.message_id_after(topic + "-read", pulsar.MessageId.earliest, 20)
    client.subscribe(topic + "-read", "s", initial_position=EARLIEST).close()
    client.skip_messages(topic + "-read", "s", 5)

def handle():
    consumer = client.subscribe(topic + "-handle", "s", SHARED, receiver_queue_size=0)
    fill(topic + "-handle")
    at_once, most, handled = 0, 0, 0
    def handler(message):
        nonlocal at_once, most, handled
        at_once += 1
        most = max(most, at_once)
        while most < 3:  # until others run as well
            sleep(0.001)
        at_once, handled = at_once - 1, handled + 1
        if handled == 20:
            consumer.stop_processing()
    consumer.process(handler, concurrency=4)
    consumer.close()

def write_letters():
    policy = pulsar.ConsumerDeadLetterPolicy(1, topic + "-dead", "s")
    consumer = client.subscribe(topic + "-letters", "s", SHARED, negative_ack_redelivery_delay_ms=50,
        enable_retry=True, dead_letter_policy=policy)
    fill(topic + "-letters", 1)
    consumer.reconsume_later(consumer.receive(20_000), 10)
    consumer.reconsume_later(consumer.receive(20_000), 10)
    client.subscribe(topic + "-dead", "s").receive(20_000)
    consumer.close()

def request():
    with client.replier(topic + "-requests", lambda message: b"re " + message.data()) as replier:
        serving = spawn(replier.run)
        with client.requester(topic + "-requests") as requester:
            assert requester.request(b"a", timeout_ms=30_000).data() == b"re a"
        replier.stop()
        wait_for(serving)

def run(part):
    part()
    done.append(part)
    print(part.__name__)

SHARED = pulsar.ConsumerType.Shared
client, done = connect(), []
waiting = client.subscribe(topic + "-wait", "s")
try:
    waiting.receive(100)  # without any other greenlet
except pulsar.Timeout:
    print("alone")
received = []
receiving = spawn(lambda: received.append(waiting.receive()))
sleep(0.01)
fill(topic + "-wait", 1)
wait_for(receiving)
print("received")
parts = [consume, listen, send, read, handle, write_letters, request]
wait_for(*[spawn(run, part) for part in parts])
client.close()
print("closed" if len(done) == len(parts) else "failed")
"""


@pytest.mark.parametrize("patch", PATCH)
def test_calls_return_beside_greenlets(broker, topic, tmp_path, patch):
    """Calls return with and without other greenlets, and a greenlet receives messages that another one sends."""
    if importlib.util.find_spec(patch) is None:
        pytest.skip(f"{patch} is not installed")
    script = tmp_path / "program.py"
    script.write_text(f"{PATCH[patch]}\n{PREAMBLE}\n{PROGRAM}")
    called = [sys.executable, "-W", "ignore", "-X", "faulthandler", str(script), Reach.of(broker).pack(), topic]
    ended = subprocess.run(called, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    steps = [line for line in ended.stdout.splitlines() if " " not in line]  # the C++ client logs beside them
    first, second, *parts, last = steps or ["", "", ""]
    assert (first, second, last) == ("alone", "received", "closed"), ended.stdout + ended.stderr
    assert len(parts) == 7
