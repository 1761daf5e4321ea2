"""A SIGTERM, a Ctrl-C and a fork during `process()`: begun messages are acknowledged, the others are kept."""

from __future__ import annotations

import pytest
from acked import send_plain
from chunked import drain, index_of
from programs import run_program
from reach import Reach

import pulsar_ext as pulsar

BLOCKING = """
client = connect()
consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, initial_position=EARLIEST)
def wait(seconds): time.sleep(seconds)
"""
AWAITED = """
import asyncio
def wait(seconds): return asyncio.sleep(seconds)
async def process(handle, **options):
    async with connect(made=pulsar.asyncio.Client) as client:
        consumer = await client.subscribe(
            topic, "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=EARLIEST)
        await consumer.process(handle, **options)
        os.write(1, b"returned\\n")
"""
HANDLE = """
{prefix}def handle(message):
    number = int(message.data().split(b".")[0])
    os.write(1, b"began %d\\n" % number)
    if number == {last}:
        os.kill(os.getpid(), signal.{signal})
    {wait}wait(0.7)
    os.write(1, b"ended %d\\n" % number)
"""


def handle(*, awaited, last=4, by="SIGTERM"):
    prefix, wait = ("async ", "await ") if awaited else ("", "")
    return HANDLE.format(prefix=prefix, wait=wait, last=last, signal=by)


@pytest.fixture
def run(broker, topic, tmp_path):
    """Run a program against the broker."""
    return lambda source: run_program(source, tmp_path, Reach.of(broker), topic, awaited=False)


def numbers(output, word):
    return {int(line.split()[1]) for line in output.splitlines() if line.startswith(word)}


def check(client, topic, done):
    """Check that messages handled in the program are acknowledged, and all others are delivered."""
    began, ended = numbers(done.stdout, "began"), numbers(done.stdout, "ended")
    assert began == ended, done.stdout + done.stderr
    assert 0 < len(began) < 10
    rest = drain(client.subscribe(topic, "s", pulsar.ConsumerType.Shared).receive, 10 - len(began))
    assert sorted(map(index_of, rest)) == sorted(set(range(10)) - began)


@pytest.mark.core
@pytest.mark.parametrize("awaited", [False, True])
def test_termination_ends_process_cleanly(client, topic, run, awaited):
    """Running handlers end and are acknowledged, `process()` returns, and other messages are kept."""
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
    send_plain(client, topic, 10)
    if awaited:
        source = AWAITED + handle(awaited=True) + "asyncio.run(process(handle, concurrency=5))"
    else:
        source = BLOCKING + handle(awaited=False) + "consumer.process(handle, concurrency=5)\nprint('returned')"
    done = run(source + "\nassert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL; print('default')")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == ["returned", "default"]
    check(client, topic, done)


def test_termination_ends_an_idle_worker(client, topic, run):
    """A termination ends idle `process()` calls of both clients at once, and several together."""
    source = """
import asyncio
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
client = connect()
client.subscribe(topic, "s").process(print)
client.close()

async def main():
    async with connect(made=pulsar.asyncio.Client) as client:
        one, other = [await client.subscribe(topic, name) for name in "ab"]
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        await asyncio.gather(one.process(print), other.process(print, concurrency=2))

asyncio.run(main())
print("both")
"""
    done = run(source)
    assert (done.returncode, done.stdout) == (0, "both\n"), done.stderr


def test_applications_signal_handler_is_kept(client, topic, run):
    """The application's handler is called; its exception is raised after the message handlers have ended."""
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
    send_plain(client, topic, 10)
    source = """
def leave(*_):
    print("mine")
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
"""
    done = run(BLOCKING + source + handle(awaited=False) + "consumer.process(handle, concurrency=5)")
    assert done.returncode == 7, done.stdout + done.stderr
    assert "mine" in done.stdout
    check(client, topic, done)


@pytest.mark.core
def test_ctrl_c_ends_process_cleanly(client, topic, run):
    """The blocking client's handlers end and are acknowledged before the KeyboardInterrupt is raised."""
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
    send_plain(client, topic, 10)
    source = """
try:
    consumer.process(handle, concurrency=5)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = run(BLOCKING + handle(awaited=False, by="SIGINT") + source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "interrupted"
    check(client, topic, done)


def test_second_ctrl_c_waits_for_no_handler(client, topic, run):
    """A second Ctrl-C abandons a hanging handler; its message and all others are kept."""
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
    send_plain(client, topic, 3)
    source = """
def hang(message):
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    time.sleep(1000)
try:
    consumer.process(hang, concurrency=2)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = run(BLOCKING + source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "interrupted"
    rest = drain(client.subscribe(topic, "s", pulsar.ConsumerType.Shared).receive, 3)
    assert sorted(map(index_of, rest)) == [0, 1, 2]


def test_termination_ends_a_forked_child(client, topic, run):
    """A SIGTERM ends a child forked during `process()` as by default, as it has nothing to end cleanly."""
    send_plain(client, topic, 1)
    source = """
def fork(message):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"begun")
        end = time.monotonic() + 20
        while time.monotonic() < end:  # not a sleep, which would have Python look for signals
            pass
        os._exit(1)
    os.read(reading, 5)  # what comes before a child has begun, Python forgets
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    consumer.stop_processing()
consumer.process(fork)
"""
    done = run(BLOCKING + source)
    assert (done.returncode, done.stdout) == (0, "-15\n"), done.stderr
