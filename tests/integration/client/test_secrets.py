"""Secrets of any authentication appear in no log, error or repr, and are sent to no foreign host."""

import contextlib
import http.server
import json
import logging
import threading
from pathlib import Path

import pytest

import pulsar_ext as pulsar

pytestmark = pytest.mark.standalone_only("is about the authentication of a profile")

_WRONG = "wr0ng-s3cret"
_TOKENS_BEGIN = "eyJhbGci"
"""Prefix of every token in the tests, including those that only the client and the broker know."""


@pytest.fixture(params=["auth", "mtls", "basic", "oauth2"])
def broker(request, pulsar_broker_factory):
    """Return a broker with authentication."""
    return pulsar_broker_factory(request.param)


@pytest.fixture
def secrets(broker):
    """Return the superuser's secrets."""
    access = broker.access
    found = [_WRONG, _TOKENS_BEGIN, *(access.basic or ())[1:]]
    if access.oauth2 is not None:
        found.append(json.loads(Path(json.loads(access.oauth2)["private_key"]).read_text())["client_secret"])
    if access.certificate is not None:
        found += Path(access.certificate[1]).read_text().splitlines()[1:-1]
    return found


def _wrong(broker, tmp_path):
    """Return an authentication of the broker's kind with wrong credentials."""
    access = broker.access
    if access.kind == "basic":
        return pulsar.AuthenticationBasic("admin", _WRONG)
    if access.kind == "oauth2":
        given = {"client_id": "admin", "client_secret": _WRONG}
        issuer = json.loads(access.oauth2)["issuer_url"]
        return pulsar.AuthenticationOauth2(json.dumps({"issuer_url": issuer, **given}))
    if access.kind == "certificate":
        key = tmp_path / "key.pem"
        key.write_text(_WRONG)
        return pulsar.AuthenticationTLS(access.certificate[0], str(key))
    return pulsar.AuthenticationToken(f"{_TOKENS_BEGIN}.{_WRONG}.x")


def _use(client, topic):
    """Use the admin API, with some failures; return the texts of errors and reprs."""
    errors = []
    producer = client.create_producer(topic, batching_enabled=False)
    sent = [producer.send(b"%d" % number) for number in range(2)]
    stored = pulsar.MessageId(-1, sent[0].ledger_id(), sent[0].entry_id())
    client.subscribe(topic, "s").seek(stored)
    for failing in (
        lambda: client.skip_messages(topic, "absent", 1),
        lambda: client.resolve_message_id(topic, pulsar.MessageId(-1, 10**6, 0)),
        lambda: client.resolve_message_id("persistent://absent/absent/absent", stored),
    ):
        with pytest.raises(pulsar.PulsarException) as caught:
            failing()
        errors.append(f"{caught.value!r} {caught.value} {vars(caught.value)}")
    return [*errors, repr(client), repr(producer), repr(client.context.admin_api())]


@pytest.mark.core
def test_texts_contain_no_secret(
    broker, secrets, pulsar_topic_factory, pulsar_client_factory, monkeypatch, caplog, capfd, tmp_path
):
    """Logs, errors and reprs contain no secret, with right and with wrong credentials."""
    monkeypatch.setenv("PULSAR_ADMIN_URL", broker.admin_url)
    topic, since = pulsar_topic_factory(broker=broker), broker.log_offset()
    with caplog.at_level(logging.DEBUG):
        loud = pulsar.ConsoleLogger(pulsar.LoggerLevel.Info)  # otherwise the C++ client keeps an earlier logger
        client = pulsar_client_factory(broker, admin=None, logger=loud)
        shown = _use(client, topic)
        client.close()
        wrong = _wrong(broker, tmp_path)
        options = {"authentication": wrong, "operation_timeout_seconds": 2}
        with pytest.raises(pulsar.PulsarException) as caught:
            pulsar_client_factory(broker, **options).create_producer(topic)
        shown += [repr(wrong), f"{caught.value!r} {caught.value}"]
        with pytest.raises(pulsar.PulsarExtError) as caught:
            pulsar_client_factory(broker, admin=broker.admin_url, **options).context.admin_api().clusters()
        shown += [f"{caught.value!r} {caught.value} {vars(caught.value)}"]
    written = capfd.readouterr()
    text = "\n".join([*shown, caplog.text, written.out, written.err, broker.log_text(since), repr(broker.access)])
    assert [secret for secret in secrets if secret in text] == []


@contextlib.contextmanager
def _serving(handler):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def _handler(requests, target):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(f"{self.path} {self.headers}")
            self.send_response(307 if target else 200)
            self.send_header("Location", f"{target}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    return Handler


def test_foreign_host_gets_no_secret(broker, secrets, pulsar_client_factory):
    """The host of a redirect that the cluster does not list gets no secret of any authentication."""
    foreign, front = [], []
    with (
        _serving(_handler(foreign, None)) as there,
        _serving(_handler(front, f"http://127.0.0.1:{there}")) as here,
    ):
        client = pulsar_client_factory(broker, admin=f"http://localhost:{here}")
        with pytest.raises(pulsar.AdminError) as caught:
            client.context.admin_api().clusters()
    assert bool(foreign) is (broker.access.kind == "certificate")  # not a secret, and not sent without TLS
    assert ("Authorization" in "".join(front)) is (broker.access.kind != "certificate")  # the application's own URL
    requests = "".join(foreign) + f"{caught.value!r} {caught.value}"
    assert [secret for secret in secrets if secret in requests] == []
