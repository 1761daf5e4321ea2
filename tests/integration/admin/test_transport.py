"""The admin API handles credentials, network failures, redirects, threads, forks and event loops."""

import asyncio
import contextlib
import http.server
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from stored import mark_delete, send_entries

from pulsar_ext.admin import AsyncPulsarAdmin, PulsarAdmin
from pulsar_ext.errors import (
    AdminError,
    AdminNotFound,
    AdminUnauthorized,
    AdminUnavailable,
)
from pulsar_ext.testing import Profile
from pulsar_ext.testing.profiles import get_profile

BOTH_CLIENTS = True
# Clients without a token have a role without permissions.
_ANONYMOUS = Profile(
    "auth-anonymous",
    "token authentication, authorization on, and a role without permissions for those without a token",
    {**get_profile("auth").settings, "anonymousUserRole": "nobody"},
    authentication=True,
)


@pytest.mark.core(slow="a broker with tokens starts")
@pytest.mark.standalone_only("is about tokens; mtls uses certificates", ways=("mtls",))
def test_wrong_and_missing_tokens(pulsar_broker_factory, pulsar_namespace_factory):
    """A 401 raises AdminUnauthorized without the token in any text; a token supplier is called before each request."""
    broker = pulsar_broker_factory("auth")
    namespace = pulsar_namespace_factory(broker)
    token_calls = []

    def token():
        token_calls.append(1)
        return f"{broker.token}\n"

    with PulsarAdmin(broker.admin_url, token=token) as admin:
        admin.create_topic(f"{namespace}/topic")
        assert admin.topics(namespace)
        assert len(token_calls) == 2
        assert broker.token not in repr(admin)
    header, payload, _ = broker.token.split(".")
    for wrong in (None, "garbage", f"{header}.{payload}.AAAA"):
        with PulsarAdmin(broker.admin_url, token=wrong) as admin:
            for call in (admin.tenants, lambda: admin.skip_entries(f"{namespace}/topic", "s", 1)):
                with pytest.raises(AdminUnauthorized) as caught:
                    call()
                assert caught.value.status == 401
                assert not wrong or wrong not in f"{caught.value}{caught.value.details}"


@pytest.mark.standalone_only("is about tokens; mtls uses certificates", ways=("mtls",))
def test_role_without_permission_raises(pulsar_broker_factory):
    """A role without permission gets 401 for a topic and 403 for a namespace; both raise AdminUnauthorized."""
    with PulsarAdmin(pulsar_broker_factory(_ANONYMOUS).admin_url) as admin:
        for call, status in (
            (lambda: admin.skip_all("topic", "s"), 401),
            (lambda: admin.topics("public/default"), 403),
        ):
            with pytest.raises(AdminUnauthorized, match="role") as caught:
                call()
            assert caught.value.status == status
            assert caught.value.reason


@pytest.mark.core
def test_unreachable_url_is_retried_for_reads(caplog):
    """An unreachable URL is retried for reads, with each pause in the log, and never for skipping."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with PulsarAdmin(f"http://me:s3cret@127.0.0.1:{port}", max_attempts=3) as admin:
        with caplog.at_level(logging.INFO, "pulsar_ext.admin"), pytest.raises(AdminUnavailable) as caught:
            admin.clusters()
        assert (caught.value.attempts, caught.value.maybe_applied, caught.value.retriable) == (3, False, True)
        assert [record.name for record in caplog.records] == ["pulsar_ext.admin"] * 2
        assert "s3cret" not in f"{caught.value}{caught.value.details}{caplog.text}"
        with pytest.raises(AdminUnavailable) as caught:
            admin.skip_all("topic", "s")
        assert (caught.value.attempts, caught.value.maybe_applied) == (1, False)
        assert not admin.health()


def test_deadline_limits_all_attempts(silent_port):
    """The deadline limits all attempts together; the error of a write says that it may have been applied."""
    with PulsarAdmin(f"http://127.0.0.1:{silent_port}", timeout_seconds=0.4, deadline_seconds=1.0) as admin:
        start = time.monotonic()
        with pytest.raises(AdminUnavailable):
            admin.clusters()
        assert time.monotonic() - start < 1.5
        with pytest.raises(AdminUnavailable) as caught:
            admin.skip_all("topic", "s")
        assert caught.value.maybe_applied


def test_binary_port_is_reported(broker):
    """The error names webServicePort if the URL has the binary port."""
    url = "http://" + broker.service_url.partition("://")[2]
    with PulsarAdmin(url, max_attempts=1) as admin, pytest.raises(AdminUnavailable, match="webServicePort"):
        admin.clusters()


class _Redirecting(http.server.BaseHTTPRequestHandler):
    """Web service that redirects every request, as a broker that does not own the topic."""

    target = ""
    brokers = ""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.brokers and self.path == "/admin/v2/brokers":
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.brokers)))
            self.end_headers()
            self.wfile.write(self.brokers.encode())
            return
        self.send_response(307)
        self.send_header("Location", self.target + self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815  # names that the base class calls

    def log_message(self, *_):
        pass


@pytest.mark.core
@pytest.mark.standalone_only("is about tokens; mtls uses certificates", ways=("mtls",))
def test_redirect_keeps_method_body_and_token(pulsar_broker_factory, pulsar_namespace_factory):
    """A redirect to the topic's owner is followed with the request's method, body and token."""
    broker = pulsar_broker_factory("auth")
    topic = f"persistent://{pulsar_namespace_factory(broker)}/a b%2F+é"
    listed = httpx2.get(f"{broker.admin_url}/admin/v2/brokers", **broker.access.http_options()).text
    handler = type("Handler", (_Redirecting,), {"target": broker.admin_url, "brokers": listed})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with PulsarAdmin(f"http://127.0.0.1:{server.server_port}", token=broker.token) as admin:
            admin.create_partitioned_topic(topic, 3)
            assert admin.partitions(topic) == 3
        server.shutdown()


@pytest.mark.core
@pytest.mark.standalone_only("is about tokens; mtls uses certificates", ways=("mtls",))
@pytest.mark.parametrize("listed", ["as the broker lists them", ""])
@pytest.mark.parametrize("secret", [{"token": "s3cret"}, {"basic": ("me", "s3cret")}])
def test_secret_is_not_sent_to_a_foreign_host(pulsar_broker_factory, caplog, listed, secret):
    """A redirect to a host that is not one of the cluster's brokers gets no token, password or request."""
    broker = pulsar_broker_factory("auth")
    brokers = httpx2.get(f"{broker.admin_url}/admin/v2/brokers", **broker.access.http_options()).text
    own_name, foreign_name = sorted(("localhost", "127.0.0.1"), key=lambda name: name not in brokers)
    assert own_name in brokers
    assert foreign_name not in brokers
    listed = listed and brokers
    with contextlib.ExitStack() as servers, socket.create_server(("127.0.0.1", 0)) as foreign:
        target = f"http://{foreign_name}:{foreign.getsockname()[1]}"
        handler = type("Handler", (_Redirecting,), {"target": target, "brokers": listed})
        server = servers.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        servers.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with PulsarAdmin(f"http://{own_name}:{server.server_port}", **secret) as admin:
            for call in (admin.clusters, lambda: admin.skip_all("topic", "s")):
                with pytest.raises(AdminError, match="was not sent there") as caught:
                    call()
                assert "s3cret" not in f"{caught.value}{caught.value.details}{admin!r}{caplog.text}"
        foreign.settimeout(0)
        with pytest.raises(BlockingIOError):  # no connection has arrived
            foreign.accept()


def test_next_url_is_used(broker, silent_port):
    """The next admin URL is used if one is unreachable or silent, and stays first; a write is sent once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"http://127.0.0.1:{server.getsockname()[1]}"
    silent, options = f"http://127.0.0.1:{silent_port}", broker.access.admin_options()
    with PulsarAdmin([closed, broker.admin_url], max_attempts=1, **options) as admin:
        with pytest.raises(AdminNotFound):
            admin.skip_all("public/default/absent", "s")
        assert admin.url == broker.admin_url
    with PulsarAdmin([silent, broker.admin_url], timeout_seconds=2, max_attempts=1, **options) as admin:
        with pytest.raises(AdminUnavailable) as caught:
            admin.skip_all("topic", "s")
        assert caught.value.maybe_applied
        assert admin.clusters()
        assert admin.url == broker.admin_url
    with PulsarAdmin([silent, closed], timeout_seconds=1, max_attempts=1) as admin, pytest.raises(AdminUnavailable):
        admin.clusters()


def test_circular_redirects_raise():
    """Brokers that redirect in circles raise an error instead of hanging."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Redirecting,), {})) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with PulsarAdmin(f"http://127.0.0.1:{server.server_port}") as admin:
            with pytest.raises(AdminUnavailable, match="in circles") as caught:
                admin.skip_all("topic", "s")
            assert (caught.value.status, caught.value.maybe_applied) == (307, False)
        server.shutdown()


def test_unreachable_redirect_target_is_named():
    """The error names the broker of the redirect, not only the one that redirected."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        target = f"http://127.0.0.1:{gone.getsockname()[1]}"
    handler = type("Handler", (_Redirecting,), {"target": target})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with PulsarAdmin(f"http://127.0.0.1:{server.server_port}", max_attempts=1) as admin:
            for call in (admin.clusters, lambda: admin.skip_all("topic", "s")):
                with pytest.raises(AdminUnavailable, match=rf"redirected to {target}\): no answer") as caught:
                    call()
                assert not caught.value.maybe_applied
        server.shutdown()


def test_invalid_redirect_target_raises():
    """An invalid redirect target raises AdminError."""
    handler = type("Handler", (_Redirecting,), {"target": "http://[nonsense"})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with (
            PulsarAdmin(f"http://127.0.0.1:{server.server_port}") as admin,
            pytest.raises(AdminError, match="invalid URL"),
        ):
            admin.clusters()
        server.shutdown()


class _Page(http.server.BaseHTTPRequestHandler):
    """Web service that is not a broker and returns one page for any request."""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", "13")
        self.end_headers()
        self.wfile.write(b"<html></html>")

    do_POST = do_GET  # noqa: N815  # names that the base class calls

    def log_message(self, *_):
        pass


def test_web_page_raises():
    """A write that is answered with a web page raises, because no broker applied it."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with PulsarAdmin(f"http://127.0.0.1:{server.server_port}") as admin:
            for call in (lambda: admin.set_message_ttl("public/default", 5), admin.broker_version, admin.clusters):
                with pytest.raises(AdminError, match="not a Pulsar broker's"):
                    call()
        server.shutdown()


@pytest.mark.core
def test_threads_share_one_admin(admin, topic):
    """Sixteen threads that share one admin API get their own responses."""
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda _: admin.internal_stats(topic).ledgers, range(200)))
    assert set(results) == {results[0]}


# Python 3.12 warns of any fork in a process with threads.
@pytest.mark.blocking_only("a forked child has no event loop")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_forked_child_opens_its_own_connections(admin, topic):
    """Both processes continue after a fork, each over its own connections."""
    admin.stats(topic)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if all(admin.subscriptions(topic) == ("s",) for _ in range(20)) else 2
        finally:
            os._exit(status)
    assert all(admin.subscriptions(topic) == ("s",) for _ in range(20))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert admin.subscriptions(topic) == ("s",)


@pytest.mark.core
@pytest.mark.blocking_only("it already tests the asyncio client")
def test_async_admin_equals_the_blocking_one(broker, admin, client, topic, silent_port):
    """Concurrent awaited operations return the blocking client's values and errors, within the deadline."""
    positions = send_entries(client, topic)

    async def read(awaited):
        entries = await asyncio.gather(*(awaited.entry(topic, each.ledger_id, each.entry_id) for each in positions))
        assert [entry.position for entry in entries] == positions
        assert await awaited.internal_stats(topic) == admin.internal_stats(topic)
        with pytest.raises(AdminNotFound):
            await awaited.peek(topic, "absent")
        await awaited.skip_entries(topic, "s", 12)
        assert await awaited.health()

    async def main():
        async with AsyncPulsarAdmin(broker.admin_url, **broker.access.admin_options()) as awaited:
            await read(awaited)
        url = f"http://127.0.0.1:{silent_port}"
        async with AsyncPulsarAdmin(url, timeout_seconds=0.3, deadline_seconds=0.6) as silent:
            with pytest.raises(AdminUnavailable):
                await silent.clusters()

    asyncio.run(main())
    assert mark_delete(admin, topic) == positions[11]
