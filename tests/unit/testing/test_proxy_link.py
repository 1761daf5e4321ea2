"""The fault proxy in front of an echo server: the effect of each fault on a connection."""

import asyncio
import contextlib
import socket
import socketserver
import threading

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing import FaultProxy

_SECONDS = 20.0


class Echo(socketserver.BaseRequestHandler):
    """Handler that echoes bytes, and records how each connection ended."""

    def handle(self):
        end = "reset"
        with contextlib.suppress(ConnectionResetError):
            while data := self.request.recv(65536):
                self.request.sendall(data)
            end = "closed"
        self.server.ends.append(end)
        self.server.ended.release()


@pytest.fixture
def server():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as echo:
        echo.daemon_threads = True
        echo.ends, echo.ended = [], threading.Semaphore(0)
        thread = threading.Thread(target=echo.serve_forever, args=(0.01,))
        thread.start()
        yield echo
        echo.shutdown()
        thread.join()


@pytest.fixture
def proxy(server):
    with FaultProxy(*server.server_address) as one:
        yield one


@pytest.fixture
def client(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port), _SECONDS) as one:
        yield one


def exchange(client, data):
    client.sendall(data)
    return receive(client, len(data))


def receive(client, count):
    got = b""
    while len(got) < count:
        more = client.recv(count - len(got))
        if not more:
            break
        got += more
    return got


def is_silent(client):
    client.settimeout(0.1)
    try:
        return client.recv(1) is None
    except TimeoutError:
        return True
    finally:
        client.settimeout(_SECONDS)


def frame(size):
    return size.to_bytes(4, "big") + b"x" * size


def test_megabytes_pass_unchanged(client):
    """More bytes than a flow holds pass in both directions at the same time, unchanged."""
    data = bytes(range(256)) * 40_000
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    assert receive(client, len(data)) == data
    sender.join()


def test_end_is_passed_on(client, server, proxy):
    """The server sees its connection closed after the client closes."""
    assert exchange(client, b"x") == b"x"
    client.close()
    assert server.ended.acquire(timeout=_SECONDS)
    assert server.ends == ["closed"]


def test_cut_resets_both_ends(client, server, proxy):
    """A cut resets both ends, and a new connection works."""
    assert exchange(client, b"x") == b"x"
    assert proxy.cut() == 1
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert server.ended.acquire(timeout=_SECONDS)
    assert server.ends == ["reset"]
    assert proxy.connections == 0
    with socket.create_connection(("127.0.0.1", proxy.port), _SECONDS) as again:
        assert exchange(again, b"y") == b"y"


@pytest.mark.parametrize("direction", ["to_broker", "to_client", None])
def test_paused_direction_forwards_after_resume(client, proxy, direction):
    """A paused direction forwards nothing, the connection stays, and its bytes arrive after `resume()`."""
    assert exchange(client, b"x") == b"x"
    proxy.pause(direction)
    client.sendall(b"later")
    assert is_silent(client)
    proxy.resume(direction)
    assert receive(client, 5) == b"later"


@pytest.mark.parametrize("direction", ["to_broker", "to_client"])
@pytest.mark.parametrize("after", [0, 3, 100])
def test_cut_inside_a_frame(client, proxy, direction, after):
    """Short frames and the first bytes of the long one pass, then this connection is reset."""
    trap = proxy.cut_in_frame(after, direction)
    short = frame(20) if after > 30 else b""
    client.sendall(short)
    assert receive(client, len(short)) == short
    got = b""
    with contextlib.suppress(ConnectionResetError):
        client.sendall(frame(200))
        while more := client.recv(204):
            got += more
    assert got == frame(200)[: after if direction == "to_client" else len(got)]
    assert len(got) <= after
    assert trap.left == 0
    with socket.create_connection(("127.0.0.1", proxy.port), _SECONDS) as again:
        assert exchange(again, frame(200)) == frame(200)


def test_forgotten_broker_end_is_reset(client, server, proxy):
    """The server's end is reset, and the client's stays open and silent until it is cut."""
    assert exchange(client, b"x") == b"x"
    assert proxy.forget("broker") == 1
    assert server.ended.acquire(timeout=_SECONDS)
    assert server.ends == ["reset"]
    client.sendall(b"nobody hears this")
    assert is_silent(client)
    assert proxy.connections == 1
    assert proxy.cut() == 1
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_forgotten_client_end_is_reset(client, server, proxy):
    """The client's end is reset, and the server's stays open until the proxy is closed."""
    assert exchange(client, b"x") == b"x"
    proxy.forget("client")
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert server.ends == []
    proxy.close()
    assert server.ended.acquire(timeout=_SECONDS)
    assert server.ends == ["reset"]


def test_half_open_connection_ends_with_its_survivor(client, server, proxy):
    """The proxy drops the connection when the surviving end closes."""
    assert exchange(client, b"x") == b"x"
    proxy.forget("broker")
    assert server.ended.acquire(timeout=_SECONDS)
    client.close()
    while proxy.connections:
        threading.Event().wait(0.01)


def test_heal_removes_all_faults(client, proxy):
    """After heal() a proxy with all faults set forwards normally."""
    assert exchange(client, b"x") == b"x"
    proxy.refuse()
    proxy.pause()
    proxy.delay(3_600, 3_600)
    proxy.limit(1)
    trap = proxy.cut_in_frame(4, "to_broker")
    proxy.heal()
    assert exchange(client, frame(500)) == frame(500)
    assert trap.left == 1
    with socket.create_connection(("127.0.0.1", proxy.port), _SECONDS) as another:
        assert exchange(another, b"y") == b"y"


def test_unknown_names_raise(proxy):
    """An unknown direction or end raises an error that names it."""
    for wrong in (
        lambda: proxy.pause("up"),
        lambda: proxy.delay(1, direction="up"),
        lambda: proxy.limit(1, "up"),
        lambda: proxy.cut_in_frame(1, "up"),
        lambda: proxy.forget("up"),
    ):
        with pytest.raises(InvalidUse, match="'up'"):
            wrong()


def test_connection_in_progress_is_rejected_by_refuse(server, monkeypatch):
    """A connection that is accepted but not yet connected to the broker is reset by `refuse()` and `cut()`."""
    connect, begun, go_on = asyncio.BaseEventLoop.create_connection, threading.Event(), threading.Event()

    async def slowly(loop, *arguments):
        begun.set()
        assert await loop.run_in_executor(None, go_on.wait, _SECONDS)
        return await connect(loop, *arguments)

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", slowly)
    address = "127.0.0.1"
    with (
        FaultProxy(*server.server_address) as proxy,
        socket.create_connection((address, proxy.port), _SECONDS) as client,
    ):
        assert begun.wait(_SECONDS)
        proxy.refuse()
        proxy.cut()
        go_on.set()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert (proxy.connections, proxy.accepted) == (0, 0)
