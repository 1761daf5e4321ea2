"""C++ log lines reach Python's logging; the logger of a process's first client has priority."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.standalone_only("is about the process")

LOGGING = """
    import asyncio, logging
    class Kept(logging.Handler):
        def __init__(self):
            super().__init__()
            self.records = []
        def emit(self, record):
            self.records.append(record)
    def logged(name, level=logging.INFO):
        logger, kept = logging.getLogger(name), Kept()
        logger.setLevel(level)
        logger.addHandler(kept)
        return logger, kept.records
    def connect(logger, made=pulsar.Client):
        return made(reach.service_url, logger=logger, **reach.options())
    def until(condition):
        for _ in range(400):
            if condition():
                return
            time.sleep(0.05)
        sys.exit("timeout")
    def has(records, *words):
        return [one for one in records if all(word in one.getMessage() for word in words)]
"""


@pytest.fixture
def logs(program):
    """Return a function that runs a program which logs, and checks its exit status."""

    def run(source):
        done = program(LOGGING + source)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_cpp_lines_become_log_records(logs):
    """A C++ line about a producer has its source and thread, and lines below the level are omitted."""
    logs("""
    logger, records = logged("lines")
    connect(logger).create_producer(topic)
    until(lambda: has(records, topic, "Created producer on broker"))
    [record] = has(records, topic, "Created producer on broker")
    assert (record.name, record.levelname, record.module, record.threadName) == ("lines", "INFO", "ProducerImpl", "C++")
    assert record.lineno > 0 and record.thread > 0
    assert min(one.levelno for one in records) == logging.INFO
    """)


def test_asyncio_client_takes_a_logger(logs):
    """The asyncio client takes a logger, too."""
    logs("""
    logger, records = logged("lines")
    async def main():
        async with connect(logger, pulsar.asyncio.Client) as client:
            await client.create_producer(topic)
    asyncio.run(main())
    until(lambda: has(records, topic, "Created producer on broker"))
    """)


@pytest.mark.parametrize("error", ["RuntimeError", "SystemExit"])
def test_later_logger_gets_later_lines(logs, error):
    """A later client's logger gets all later lines, and an exception of its filter has no effect."""
    logs(
        f"""
    failure = {error}
    """
        """
    first, records = logged("first")
    connect(first).create_producer(topic)
    until(lambda: has(records, "Created producer"))
    ours, complaints = logged("pulsar_ext")
    second, later = logged("second")
    seen = []
    def fail(record):
        seen.append(record)
        raise failure("failed")
    second.addFilter(fail)
    connect(second).create_producer(topic + "-second")
    until(lambda: has(seen, topic + "-second", "Created producer"))
    until(lambda: has(complaints, "second failed"))
    assert not has(records, topic + "-second")
    """
    )


def test_lines_of_the_final_close_are_handled(logs):
    """Lines of the final close are handled, and in a forked process those of its own client."""
    printed = logs("""
    class Printing(logging.Handler):
        def emit(self, record):
            os.write(1, f"{os.getpid() == main} {record.getMessage()}\\n".encode())
    main = os.getpid()
    logger, _ = logged("lines")
    logger.addHandler(Printing())
    connect(logger).create_producer(topic)
    if not (child := os.fork()):
        _, records = logged("lines")
        client = connect(logger)
        client.create_producer(topic + "-child")
        client.close()
        until(lambda: has(records, "-child", "Closed producer"))
        os._exit(0)
    os.waitpid(child, 0)
    """)
    lines = printed.splitlines()
    assert any(line.startswith("True ") and "Closing Pulsar client" in line for line in lines), lines
    assert any(line.startswith("False ") and "-child, " in line and "Created producer" in line for line in lines), lines
    assert not any(line.startswith("True ") and "-child" in line for line in lines), lines


def test_thousands_of_debug_lines_are_handled(logs):
    """Thousands of debug lines are handled while Python waits for the C++ client."""
    printed = logs("""
    logger, records = logged("lines", logging.DEBUG)
    client = connect(logger)
    producer = client.create_producer(topic, max_pending_messages=5_000)
    for _ in range(3_000):
        producer.send_async(b"data", None)
    producer.flush()
    client.close()
    until(lambda: has(records, "Closing Pulsar client"))
    print("debug lines:", sum(one.levelno == logging.DEBUG for one in records))
    """)
    assert int(printed.split("debug lines:")[1]) > 1_000
