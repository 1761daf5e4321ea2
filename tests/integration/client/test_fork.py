"""Inherited clients raise in a forked child and keep working in the parent."""

from __future__ import annotations

import pytest
from stored import contents

BOTH_CLIENTS = True


@pytest.mark.core
@pytest.mark.blocking_only("a forked child has no event loop")
def test_inherited_client_raises_in_a_forked_child(program, client, topic):
    """Each use in the child raises ForkedClientError, a new client works there, and the parent's keeps working."""
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
                    print("no error:", name)
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


@pytest.mark.core(slow="processes are started")
@pytest.mark.through
def test_worker_process_sends_everything_on_exit(program, client, topic):
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
