"""Misuse never aborts, segfaults or hangs the process, and never eats a message.

What may end a process runs in one of its own, with a limit of time that only a hang reaches.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path

import pytest
from chunked import drain, eventually
from interrupted import interruptions

import pulsar_ext as pulsar

BOTH_CLIENTS = True

HANG_SECONDS = 120
EARLIEST = {"initial_position": pulsar.InitialPosition.Earliest}

PREAMBLE = """
import os, signal, sys, threading, time
import pulsar_ext as pulsar, pulsar_ext.asyncio
service_url, admin_url, topic = sys.argv[1:4]
def connect(url=service_url, made=pulsar.Client, **options):
    return made(url, admin=admin_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **options)
EARLIEST = pulsar.InitialPosition.Earliest
"""
AWAITED = f"""
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from awaited import AwaitedClient
blocking = connect
def connect(*args, **options):
    return AwaitedClient(blocking(*args, made=pulsar.asyncio.Client, **options))
"""


@pytest.fixture
def program(request, client_factory, broker, topic, tmp_path):
    """Run a program against the broker in a process of its own; its status and its output are the result."""
    preamble = PREAMBLE + (AWAITED if request.node.callspec.params["client_factory"] == "awaited" else "")

    def run(source: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "program.py"
        script.write_text(preamble + textwrap.dedent(source))
        return subprocess.run(
            [sys.executable, "-X", "faulthandler", str(script), broker.service_url, broker.admin_url, topic],
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )

    return run


def contents(client, topic):
    """Everything on the topic."""
    return [message.data() for message in drain(client.create_reader(topic, pulsar.MessageId.earliest).read_next)]


@pytest.mark.blocking_only("a forked child has no event loop to await anything in")
def test_a_client_inherited_across_a_fork_refuses_and_a_new_one_works(program, client, topic):
    """In the child every use raises ForkedClientError, a client of its own sends, and the parent goes on unharmed."""
    done = program(
        """
        client = connect()
        producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        producer.send(b"before")
        message = consumer.receive(10000)
        child = os.fork()
        if not child:
            uses = {
                "send": lambda: producer.send(b"lost"), "send_async": lambda: producer.send_async(b"lost", None),
                "flush": producer.flush, "receive": consumer.receive, "receive in time": lambda: consumer.receive(100),
                "batch": consumer.batch_receive, "acknowledge": lambda: consumer.acknowledge(message),
                "read": reader.read_next, "create": lambda: client.create_producer(topic),
                "subscribe": lambda: client.subscribe(topic, "t"), "seek": lambda: reader.seek(1),
            }
            for name, use in uses.items():
                try:
                    use()
                    print("not refused:", name)
                except pulsar.ForkedClientError:
                    pass
            with connect() as own:
                own.create_producer(topic).send(b"child")
            sys.exit(7)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        producer.send(b"after")
        consumer.acknowledge(message)
        print([consumer.receive(10000).data() for _ in range(2)])
        client.close()
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["child 7", "[b'child', b'after']"]
    assert contents(client, topic) == [b"before", b"child", b"after"]


@pytest.mark.blocking_only("a Ctrl-C cancels awaited receives, which test_asyncio.py does 10,000 times")
@pytest.mark.parametrize(
    ("what", "queue"),
    [*((what, queue) for what in ("receive", "read_next") for queue in (1000, 1, 0)), ("loop", 1000), ("many", 1000)],
)
def test_an_interrupted_receive_loses_no_message(client, topic, what, queue):
    """A Ctrl-C every 10 ms while messages arrive: each ends a wait, and every message arrives once."""
    count = 400
    opened = (
        client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=queue)
        if what == "read_next"
        else client.subscribe(topic, "s", receiver_queue_size=queue)
    )
    acknowledge = getattr(opened, "acknowledge_many", list)  # a consumer that acknowledges receives in another way
    producer = client.create_producer(topic)

    def produce():
        for index in range(count):
            producer.send(b"%d" % index)
            if index % 20 == 0:
                time.sleep(0.15)

    thread = threading.Thread(target=produce)
    thread.start()
    received, interrupted = [], 0
    deadline = time.monotonic() + HANG_SECONDS
    with interruptions() as waiting:
        while len(received) < count and time.monotonic() < deadline:
            came = None  # stored by the very next instruction: what this test drops itself is not what it looks for
            try:
                waiting[:] = [True]
                if what == "loop":
                    for came in opened:  # noqa: B007  # read below
                        break
                elif what == "many":
                    came = opened.receive_many(7)
                else:
                    came = getattr(opened, what)()
            except KeyboardInterrupt:
                interrupted += 1
            del waiting[:]
            messages = [] if came is None else came if what == "many" else [came]
            received += [int(message.data()) for message in messages]
            if len(received) > count // 2:
                acknowledge(messages)
    thread.join()
    assert received == list(range(count))
    assert interrupted


@pytest.mark.blocking_only("a Ctrl-C cancels awaited receives, which test_asyncio.py does 10,000 times")
def test_a_receive_with_a_timeout_can_be_interrupted(program):
    """Ctrl-C ends receive(60000) and read_next() at once, with a KeyboardInterrupt."""
    done = program(
        """
        client = connect()
        consumer, reader = client.subscribe(topic, "s"), client.create_reader(topic, pulsar.MessageId.latest)
        for wait in (lambda: consumer.receive(600_000), reader.read_next, consumer.receive):
            timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            try:
                wait()
            except KeyboardInterrupt:
                print("interrupted")
        client.close()
        """
    )
    assert done.stdout.split() == ["interrupted"] * 3, done.stderr


@pytest.mark.blocking_only("awaited sends have no callbacks")
def test_a_send_callback_that_raises_harms_nobody(client, topic, caplog):
    """All 300 callbacks of batches are called though every third raises; flush returns; nothing is lost."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=100)
    results = []

    def callback(result, message_id):
        results.append(result)
        if len(results) % 3 == 0:
            raise RuntimeError("the application's own error")
        if len(results) % 7 == 0:
            raise SystemExit

    for index in range(300):
        producer.send_async(b"%d" % index, callback)
    producer.flush()
    assert eventually(lambda: len(results) == 300)
    assert set(results) == {pulsar.Result.Ok}
    assert contents(client, topic) == [b"%d" % index for index in range(300)]
    assert "the application's own error" in caplog.text


@pytest.mark.blocking_only("awaited sends have no callbacks")
def test_waiting_inside_a_send_callback_is_refused_not_deadlocked(client, topic):
    """send, flush and close of the same client raise InvalidUse there; send_async works."""
    producer = client.create_producer(topic)
    answers, second = [], threading.Event()

    def callback(result, message_id):
        for use in (lambda: producer.send(b"x"), producer.flush, producer.close, client.close):
            try:
                use()
            except pulsar.InvalidUse:
                answers.append("refused")
        producer.send_async(b"second", lambda *_: second.set())

    producer.send_async(b"first", callback)
    assert second.wait(HANG_SECONDS)
    assert answers == ["refused"] * 4
    assert contents(client, topic) == [b"first", b"second"]


def test_a_listener_that_raises_goes_on_and_its_message_stays(client, topic, caplog):
    """All messages are heard though every second raises; those come again to the next consumer."""
    heard = []

    def listen(consumer, message):
        heard.append(message.data())
        if len(heard) % 2:
            raise RuntimeError("the application's own error")
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, message_listener=listen)
    producer = client.create_producer(topic)
    for index in range(20):
        producer.send(b"%d" % index)
    assert eventually(lambda: len(heard) == 20)
    consumer.close()
    again = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    assert sorted(message.data() for message in drain(again.receive, 10)) == sorted(heard[0::2])
    assert "the application's own error" in caplog.text


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("kept", ["held", "dropped"])
def test_an_exit_without_close_sends_everything_and_ends_cleanly(program, client, topic, batching, kept):
    """A program that ends with callbacks pending and acknowledgements unsent: status 0, nothing lost, nothing again."""
    producer = client.create_producer(topic)
    for index in range(50):
        producer.send(b"old %d" % index)
    client.subscribe(topic, "s", **EARLIEST).close()
    done = program(
        f"""
        def main():
            client = connect()
            consumer = client.subscribe(topic, "s")
            for _ in range(50):
                consumer.acknowledge(consumer.receive(10000))
            producer = client.create_producer(topic, batching_enabled={batching}, batching_max_publish_delay_ms=5000,
                                              max_pending_messages=5000)
            for index in range(500):
                producer.send_async(b"new %d" % index, lambda result, message_id: None)
            return client, consumer, producer
        kept = main()
        if {kept == "dropped"}:
            del kept
        """
    )
    assert done.returncode == 0, done.stderr
    with client.subscribe(topic, "s") as consumer:
        assert [message.data() for message in drain(consumer.receive, 500)] == [b"new %d" % i for i in range(500)]


@pytest.mark.blocking_only("a coroutine ends with its loop")
@pytest.mark.parametrize(
    "use",
    [
        "one.send_async(b'x', lambda *_: None)",
        "batching.send_async(b'x', lambda *_: None)",
        "one.send(b'x')",
        "batching.send(b'x')",
        "consumer.acknowledge(consumer.receive(200))",
        "reader.read_next(200)",
    ],
)
def test_a_thread_that_goes_on_at_the_end_does_not_abort_the_program(program, topic, use):
    """A daemon thread whose loop outlasts the program, and every error: the status is the program's own, 7."""
    done = program(
        f"""
        client = connect()
        one = client.create_producer(topic, block_if_queue_full=True)
        batching = client.create_producer(topic, block_if_queue_full=True, batching_enabled=True)
        consumer = client.subscribe(topic, "s")
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        ranges = client.create_reader(topic, pulsar.MessageId.earliest, key_hash_ranges=[pulsar.KeyHashRange(0, 65535)])
        for _ in range(1000):
            one.send_async(b"x", None)
        one.flush()
        def go_on():
            while True:
                try:
                    {use}
                except pulsar.PulsarException:
                    pass
        threading.Thread(target=go_on, daemon=True).start()
        time.sleep(0.2)
        sys.exit(7)
        """
    )
    assert done.returncode == 7, done.stderr


@pytest.mark.blocking_only("awaited consumers have no listeners")
@pytest.mark.parametrize("how", ["subscribe", "create_reader"])
def test_a_closed_client_with_a_listener_is_freed(broker, topic, how):
    """Nothing is left of a client whose listener refers to its consumer, once it is closed and dropped."""

    def use():
        client, heard = pulsar.Client(broker.service_url), threading.Event()

        def listen(consumer, message):
            heard.set()
            assert consumer is opened

        opened = (
            client.subscribe(topic, "s", message_listener=listen)
            if how == "subscribe"
            else client.create_reader(topic, pulsar.MessageId.earliest, reader_listener=listen)
        )
        client.create_producer(topic).send(b"x")
        assert heard.wait(HANG_SECONDS)
        client.close()
        return weakref.ref(client), weakref.ref(opened)

    kept = use()
    assert eventually(lambda: gc.collect() >= 0 and [one() for one in kept] == [None, None])


def close_among_senders(client, topic):
    """Close a client that three threads send with; give those, what was sent without waiting, and what was told."""
    producer = client.create_producer(topic, block_if_queue_full=True)
    ended, sent, told = threading.Event(), [], []

    def send():
        with contextlib.suppress(pulsar.AlreadyClosed):
            while True:
                producer.send(b"x")

    def send_async():
        while not ended.is_set():
            sent.append(None)
            producer.send_async(b"x", lambda result, _: told.append(result))

    threads = [threading.Thread(target=target, daemon=True) for target in (send, send, send_async)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    client.close()
    ended.set()
    return threads, sent, told


@pytest.mark.blocking_only("a coroutine sends on the thread that closes")
def test_a_thread_that_sends_while_its_client_closes_is_told(broker, topic):
    """A send that meets the close of its client ends, with an id or AlreadyClosed, and every callback is called."""
    for _ in range(20):
        threads, sent, told = close_among_senders(pulsar.Client(broker.service_url), topic)
        for thread in threads:
            thread.join(HANG_SECONDS)
        assert not any(thread.is_alive() for thread in threads)
        assert eventually(lambda told=told, sent=sent: len(told) == len(sent), HANG_SECONDS)


@pytest.mark.blocking_only("awaited consumers have no listeners")
@pytest.mark.parametrize("how", ["subscribe", "create_reader"])
def test_a_listener_goes_on_though_nobody_keeps_its_client(client, broker, topic, how):
    """A client with a listener that is dropped, not closed, hears every message; officially it soon hears nothing."""
    heard = []

    def start():
        dropped = pulsar.Client(broker.service_url)
        if how == "subscribe":
            dropped.subscribe(topic, "s", message_listener=lambda _, message: heard.append(message.data()))
        else:
            start = pulsar.MessageId.earliest
            dropped.create_reader(topic, start, reader_listener=lambda _, message: heard.append(message.data()))
        return weakref.ref(dropped)

    kept = start()
    gc.collect()
    producer = client.create_producer(topic)
    for index in range(10):
        producer.send(b"%d" % index)
    assert eventually(lambda: heard == [b"%d" % index for index in range(10)])
    kept().close()


def test_closing_again_does_nothing(client, topic):
    """A second close of a producer, consumer, reader or client is no error; use after close is, and says so."""
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    for opened in (producer, consumer, reader):
        opened.close()
        opened.close()
    for use in (lambda: producer.send(b"x"), consumer.receive, lambda: consumer.receive(100), reader.read_next):
        with pytest.raises(pulsar.AlreadyClosed):
            use()
    client.close()
    client.close()


def test_close_sends_an_open_batch(client, topic):
    """A producer closed, or whose client is closed, with a batch open persists it; officially it fails."""
    results = []
    for _ in range(2):
        producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
        for index in range(5):
            producer.send_async(b"%d" % index, lambda result, _: results.append(result))
        producer.close()
    assert results == [pulsar.Result.Ok] * 10
    assert len(contents(client, topic)) == 10


@pytest.mark.parametrize("blocks", [True, False])
def test_a_full_queue_of_chunked_messages_neither_deadlocks_nor_leaks(client, topic, blocks):
    """With a queue of 4, 60 chunked messages: blocking all are stored; else the refused are told, and 4 more fit."""
    producer = client.create_producer(topic, chunking_enabled=True, block_if_queue_full=blocks, max_pending_messages=4)
    results = []
    for index in range(60):
        producer.send_async(b"%2d" % index * 100_000, lambda result, _: results.append(result))
    producer.flush()
    assert eventually(lambda: len(results) == 60)
    stored = results.count(pulsar.Result.Ok)
    assert stored == 60 if blocks else 4 <= stored < 60
    assert set(results) <= {pulsar.Result.Ok, pulsar.Result.ProducerQueueIsFull}
    for _ in range(4):
        producer.send_async(b"x" * 200_000, lambda result, _: results.append(result))
    producer.flush()
    assert eventually(lambda: results.count(pulsar.Result.Ok) == stored + 4)
    assert len(contents(client, topic)) == stored + 4


def test_an_empty_key_is_a_key_and_sequence_zero_a_sequence_id(client, topic):
    """partition_key='' and sequence_id=0 reach the broker; officially both count as missing."""
    producer = client.create_producer(topic)
    message_id = producer.send(b"x", partition_key="", sequence_id=0)
    entry = client.context.admin_api().entry(topic, message_id.ledger_id(), message_id.entry_id())
    assert entry.partition_key == ""
    assert entry.sequence_id == 0


@pytest.mark.twin_on_demand
def test_messages_arrive_across_a_broker_restart(pulsar_own_broker, client_factory):
    """A receive that waits through kill -9 and restart of the broker goes on; all acknowledged sends arrive once."""
    broker = pulsar_own_broker("plain")
    client = client_factory(broker)
    topic = "persistent://public/default/restart"
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    sent, received = [], []

    def receive():
        while len(received) < 40:
            message = consumer.receive()
            consumer.acknowledge(message)
            if message.data() not in received:
                received.append(message.data())

    waiter = threading.Thread(target=receive, daemon=True)
    waiter.start()
    for index in range(40):
        if index == 20:
            broker.kill()
            broker.restart()
        sent.append(b"%d" % index)
        producer.send(sent[-1])
    waiter.join(HANG_SECONDS)
    assert received == sent


def test_a_chunked_message_past_its_redeliveries_is_a_whole_dead_letter(program):
    """The C++ client would die of a chunked dead letter: here it arrives, whole, and the process lives on."""
    done = program(
        """
        client = connect()
        consumer = client.subscribe(
            topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, topic + "-dead"),
        )
        dead = client.subscribe(topic + "-dead", "d")
        client.create_producer(topic, chunking_enabled=True).send(b"x" * 250_000)
        consumer.negative_acknowledge(consumer.receive(20_000))
        consumer.negative_acknowledge(consumer.receive(20_000))
        print(len(dead.receive(20_000).data()))
        client.close()
        """
    )
    assert done.returncode == 0, done.stderr
    assert "250000" in done.stdout.split()


@pytest.mark.parametrize("how", ["close", "exit"])
def test_a_frozen_connection_does_not_hold_up_the_end(program, how):
    """With a batch open and the link frozen, close() and the program's end come, and the callback is told."""
    done = program(
        f"""
        from pulsar_ext.testing import FaultProxy
        with FaultProxy.to(service_url) as proxy:
            client = connect(proxy.service_url, operation_timeout_seconds=3)
            producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000,
                                              send_timeout_millis=0)
            producer.send_async(b"x", lambda result, _: print(result.name, flush=True))
            proxy.pause()
            if {how == "close"}:
                try:
                    client.close()
                except pulsar.PulsarException:
                    pass
                print("closed")
        """
    )
    assert done.returncode == 0, done.stderr
    if how == "close":
        told, *_, ended = [line for line in done.stdout.splitlines() if "ERROR" not in line]
        assert (told, ended) == ("AlreadyClosed", "closed")


def test_a_sender_that_waits_for_room_ends_with_its_producer(client, topic):
    """Threads that wait for room in the window of chunks return when another thread closes the producer."""
    producer = client.create_producer(topic, chunking_enabled=True, block_if_queue_full=True, max_pending_messages=1)

    def send():
        for _ in range(20):
            producer.send_async(b"x" * 300_000, lambda *_: None)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    producer.close()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("answer", ["None", "'a'", "1 / 0", "-1", "99"])
def test_a_message_router_that_fails_fails_its_message_only(program, client, pulsar_topic_factory, broker, answer):
    """A router that raises, or gives no partition, makes that send fail; the process lives and goes on."""
    parent = pulsar_topic_factory(partitions=2, broker=broker)
    done = program(
        f"""
        import logging
        logging.disable(logging.CRITICAL)
        client = connect()
        producer = client.create_producer({parent!r}, message_router=lambda message, count: {answer})
        try:
            producer.send(b"x")
        except pulsar.PulsarException as error:
            print(type(error).__name__)
        client.close()
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "UnknownError"


@pytest.mark.blocking_only("a Ctrl-C cancels awaited receives, which test_asyncio.py does 10,000 times")
def test_an_interrupted_batch_receive_keeps_its_batch(program):
    """A Ctrl-C during batch_receive() leaves the messages that it brought to the next call."""
    done = program(
        """
        client = connect()
        policy = pulsar.ConsumerBatchReceivePolicy(3, 1_000_000, 1500)
        consumer = client.subscribe(topic, "s", batch_receive_policy=policy)
        producer = client.create_producer(topic)
        timer = threading.Timer(0.4, lambda: (producer.send(b"0"), os.kill(os.getpid(), signal.SIGINT)))
        timer.start()
        received = []
        try:
            received += consumer.batch_receive()
        except KeyboardInterrupt:
            print("interrupted")
        while not received:
            received += consumer.batch_receive()
        print([message.data() for message in received])
        client.close()
        """
    )
    assert done.stdout.splitlines() == ["interrupted", "[b'0']"], done.stderr


def test_a_worker_process_sends_everything_at_its_end(program, client, topic):
    """A multiprocessing child that ends without close, forked or spawned, has sent all its messages."""
    done = program(
        """
        import multiprocessing
        def work(name):
            client = connect()
            producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=5000)
            for index in range(100):
                producer.send_async(b"%d" % index, lambda *_: None)
        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                process = multiprocessing.get_context(method).Process(target=work, args=(method,))
                process.start()
                process.join()
                print(process.exitcode)
        """
    )
    assert done.stdout.split() == ["0", "0"], done.stderr
    assert len(contents(client, topic)) == 200
