"""Pure parts of the admin API: URLs, request bodies, responses, errors, and operations without a socket."""

import inspect
import pickle
import ssl
import subprocess
import sys
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.admin import AsyncPulsarAdmin, EntryMetadata, PulsarAdmin, derive_admin_url
from pulsar_ext.admin._core import Answer, Request, nothing
from pulsar_ext.admin._operations import cursor_body, subscription_path
from pulsar_ext.admin._session import error_of_answer, reason_of
from pulsar_ext.admin._url import ClusterAddresses
from pulsar_ext.errors import (
    AdminConflict,
    AdminError,
    AdminNotAllowed,
    AdminNotFound,
    AdminPrecondition,
    AdminUnauthorized,
    AdminUnavailable,
    InvalidUse,
    NotOpen,
)
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

_TOPIC = TopicName.parse("t/n/topic")


@pytest.mark.parametrize(
    ("service_url", "admin_url"),
    [
        ("pulsar://h:6650", "http://h:8080"),
        ("pulsar://h", "http://h:8080"),
        ("pulsar://h:6650,h2:6651/", "http://h:8080,h2:8080"),
        ("pulsar+ssl://h:6651", "https://h:8443"),
        ("pulsar://[::1]:6650", "http://[::1]:8080"),
        ("http://h:1234", "http://h:1234"),
        ("https://h", "https://h"),
    ],
)
def test_admin_url_from_service_url(service_url, admin_url):
    """Each form of a service URL yields the default admin port of its hosts; the environment variable has priority."""
    assert derive_admin_url(service_url, {}) == admin_url
    assert derive_admin_url(service_url, {"PULSAR_ADMIN_URL": ""}) == admin_url
    assert derive_admin_url(service_url, {"PULSAR_ADMIN_URL": "http://other:1"}) == "http://other:1"


@pytest.mark.parametrize("service_url", ["", "h:6650", "kafka://h", "pulsar://", "pulsar://h:port", "pulsar://a b"])
def test_invalid_service_url_raises(service_url):
    """An invalid service URL raises, and no admin URL is derived from it."""
    with pytest.raises(InvalidUse):
        derive_admin_url(service_url, {})


def test_tls_context_is_created_only_if_needed(monkeypatch):
    """A TLS context is created only if needed: a child forked during that can wait for OpenSSL's locks forever."""
    made = []
    monkeypatch.setattr(
        "ssl.create_default_context", lambda **_: made.append(1) or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    PulsarAdmin("http://h:1")
    assert not made
    PulsarAdmin("https://h:1")
    PulsarAdmin("http://h:1", tls_trust_certs_file_path="certificates")
    assert len(made) == 2


def test_first_request_imports_few_modules():
    """The first request imports few modules: a consumer's client sends it while messages arrive."""
    program = """if True:
        import sys
        import pulsar_ext
        pulsar_ext.Client
        before = set(sys.modules)
        try:
            pulsar_ext.PulsarAdmin("http://127.0.0.1:1").within(0.2).clusters()
        except pulsar_ext.AdminUnavailable:
            print(len(set(sys.modules) - before))
    """
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert int(run.stdout) < 10


def test_credentials_are_removed_from_the_url():
    """User and password are decoded and removed from the URL, and appear in no text of the admin object."""
    url = ClusterAddresses("HTTP://me:s%40cret@h1:8080,h2:8080/pulsar/")
    assert url.bases == ("http://h1:8080/pulsar", "http://h2:8080/pulsar")
    assert url.credentials == ("me", "s@cret")
    assert "cret" not in repr(url)
    with PulsarAdmin("http://me:s%40cret@h:8080") as admin:
        assert repr(admin) == "PulsarAdmin('http://h:8080')"


@pytest.mark.parametrize(
    "url", ["h:8080", "pulsar://user:s3cret@h:6650", "http://", "http://user:s3cret@h:x", "http://h/?q"]
)
def test_invalid_admin_url_raises(url):
    """Invalid URLs raise on construction, and the error does not repeat a password."""
    with pytest.raises(InvalidUse) as caught:
        PulsarAdmin(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"tls_trust_certs_file_path": "/nonexistent"},
        {"tls_private_key_file_path": "/nonexistent"},
        {"timeout_seconds": 0},
        {"deadline_seconds": -1},
        {"max_attempts": 0},
        {"timeout_seconds": float("nan")},
        {"deadline_seconds": float("inf")},
    ],
)
def test_invalid_options_raise_on_construction(options):
    """An invalid TLS file or limit raises on construction, not at the first call."""
    with pytest.raises(InvalidUse):
        PulsarAdmin("http://h:8080", **options)


def test_token_with_user_raises():
    """Two kinds of credentials raise instead of one being chosen."""
    with pytest.raises(InvalidUse, match="token"):
        PulsarAdmin("http://u:p@h:8080", token="t")


@pytest.mark.parametrize("token", ["a\nb", "tökén"])
def test_token_invalid_in_a_header_raises(token):
    """A token that is invalid in a header raises before a request, and the error does not repeat it."""
    with PulsarAdmin("http://127.0.0.1:1", token=token) as admin, pytest.raises(InvalidUse) as caught:
        admin.clusters()
    assert token not in str(caught.value)


def test_closed_admin_raises_not_open():
    """Each call after `close()` raises NotOpen; a second `close()` does nothing."""
    admin = PulsarAdmin("http://127.0.0.1:1")
    admin.close()
    admin.close()
    with pytest.raises(NotOpen):
        admin.clusters()


def test_both_clients_have_equal_operations():
    """The blocking and the asyncio client have equal operations and signatures, without the session."""
    sync, awaited = PulsarAdmin("http://h:1"), AsyncPulsarAdmin("http://h:1")
    names = {name for name in dir(sync) if not name.startswith("_")}
    assert names == {name for name in dir(awaited) if not name.startswith("_")}
    for name in names - {"close", "url"}:
        signature = inspect.signature(getattr(sync, name))
        assert signature == inspect.signature(getattr(awaited, name))
        assert "session" not in signature.parameters
        assert inspect.getdoc(getattr(PulsarAdmin, name))


# The broker accepts any subscription name and decodes it twice.
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_subscription_survives_two_decodings(name):
    """Each name is unchanged by the broker's two decodings, and never adds a path segment."""
    path = subscription_path(_TOPIC, name)
    segments = path.split("/")
    assert segments[:5] == [*_TOPIC.rest_path.split("/"), "subscription"]
    assert len(segments) == 6
    assert unquote(unquote(segments[5], errors="strict"), errors="strict") == name
    assert segments[5] not in {".", ".."}


@pytest.mark.parametrize("name", ["", None, 3, "\ud800"])
def test_invalid_subscription_name_raises(name):
    """An invalid subscription name raises before a request."""
    with pytest.raises(InvalidUse):
        subscription_path(_TOPIC, name)


def test_cursor_body_has_every_field():
    """All fields are always present: a missing or misspelt one would reset the cursor to the start."""
    assert cursor_body(Position(5, 7), excluded=True, batch_index=2) == {
        "ledgerId": 5,
        "entryId": 7,
        "partitionIndex": -1,
        "batchIndex": 2,
        "excluded": True,
    }
    assert cursor_body("earliest", excluded=False) == "earliest"


@pytest.mark.parametrize(
    ("position", "options"),
    [
        ("5:7", {}),
        (None, {}),
        ({}, {}),
        (Position(-1, -1), {}),
        (Position(5, -1), {}),
        (Position(ledger_id=True, entry_id=1), {}),
        (Position(5, 2**63), {}),
        (Position(5, 1), {"batch_index": -2}),
        ("latest", {"excluded": True}),
    ],
)
def test_invalid_cursor_position_raises(position, options):
    """A malformed position raises and is never interpreted."""
    with pytest.raises(InvalidUse):
        cursor_body(position, **{"excluded": False, **options})


def _request() -> Request[None]:
    return Request("POST", "persistent/t/n/topic/x", nothing)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AdminUnauthorized),
        (403, AdminUnauthorized),
        (404, AdminNotFound),
        (405, AdminNotAllowed),
        (409, AdminConflict),
        (412, AdminPrecondition),
        (429, AdminUnavailable),
        (503, AdminUnavailable),
        (307, AdminUnavailable),
        (500, AdminError),
        (422, AdminError),
    ],
)
def test_status_becomes_typed_error(status, kind):
    """Each status has its error type; its attributes have the broker's reason and the request, also when unpickled."""
    error = error_of_answer(_request(), "http://h:8080", Answer(status, {}, b'{"reason":"because"}'))
    assert type(error) is kind
    assert (error.status, error.reason, error.method, error.path) == (status, "because", "POST", _request().path)
    assert getattr(error, "maybe_applied", False) == (status == 503)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.details) == (kind, str(error), error.details)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", ""),
        (b'{"reason":"Topic not found"}', "Topic not found"),
        (b'{"servlet":"x-1","message":"Authentication required","url":"/a","status":"401"}', "Authentication required"),
        (
            (
                b'{"reason":"\\n --- An unexpected error occurred in the server ---\\n\\nMessage: No such entry\\n\\n'
                b'Stacktrace:\\n\\njava.lang.X\\n\\tat y"}'
            ),
            "No such entry",
        ),
        (
            b"<html><head><title>Error 404</title></head><body><h2>HTTP ERROR 404 Not&nbsp;Found</h2></body></html>",
            "HTTP ERROR 404 Not Found",
        ),
        (b"plain   words\n", "plain words"),
        (b'["a"]', "['a']"),
        (b"x" * 1000, "x" * 500 + "…"),
    ],
)
def test_reason_is_extracted_from_the_body(body, reason):
    """A reason is extracted from JSON, stack traces and HTML."""
    assert reason_of(Answer(404, {}, body)) == reason


@given(st.binary())
def test_any_body_yields_a_reason(body):
    """A reason of limited length is made from any body."""
    assert len(reason_of(Answer(500, {}, body))) <= 501


def test_entry_headers_of_a_chunk():
    """All headers of a chunk, as broker 4.2.4 writes them, are parsed."""
    metadata = EntryMetadata.from_headers(
        {
            "server": "Jetty",
            "x-pulsar-message-id": "6:1",
            "x-pulsar-property": '{"a":"1"}',
            "x-pulsar-publish-time": "2026-11-21T14:20:41.076Z",
            "x-pulsar-event-time": "1970-01-01T00:02:03.456Z",
            "x-pulsar-producer-name": "pc",
            "x-pulsar-sequence-id": "0",
            "x-pulsar-partition-key": "kéy",
            "x-pulsar-base64-ordering-key": "b2s=",
            "x-pulsar-uuid": "pc-0",
            "x-pulsar-num-chunks-from-msg": "3",
            "x-pulsar-total-chunk-msg-size": "300000",
            "x-pulsar-chunk-id": "1",
            "x-pulsar-is-encrypted": "false",
            "x-pulsar-broker-entry-metadata-index": "12",
        }
    )
    assert metadata == EntryMetadata(
        position=Position(6, 1),
        producer_name="pc",
        sequence_id=0,
        publish_time=1795270841076,
        event_time=123456,
        uuid="pc-0",
        chunk_id=1,
        num_chunks=3,
        total_chunk_size=300000,
        index=12,
        partition_key="kéy",
        ordering_key=b"ok",
        properties={"a": "1"},
    )
    assert metadata.is_chunk
    assert metadata.message_count == 1


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("+53872825-06-17T22:13:20Z", 1_700_000_000_000_000_000),  # nanoseconds, as a broker 4.2.4 wrote them
        ("+292278994-08-17T07:12:55.807Z", 2**63 - 1),
        ("1969-12-31T23:59:59.999Z", -1),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("+10000-01-01T01:00+01:00", 253_402_300_800_000),
        ("-0001-01-01T00:00:00Z", -62_198_755_200_000),
    ],
)
def test_time_of_any_year_is_parsed(text, millis):
    """A time in any year is parsed, because producers may set any number."""
    headers = {"x-pulsar-message-id": "6:1", "x-pulsar-event-time": text}
    assert EntryMetadata.from_headers(headers).event_time == millis


@pytest.mark.parametrize(
    ("header", "uncommitted"),
    [
        ("x-pulsar-txn-uncommitted: true", True),
        ("x-pulsar-txn-uncommitted: false", False),
        ("x-pulsar-txn-consumable: false", True),
        ("x-pulsar-txn-consumable: true", False),
    ],
)
def test_undeliverable_entries_are_known_by_both_headers(header, uncommitted):
    """Pulsar 5 has another header for a message after the first one of an open transaction."""
    name, _, text = header.partition(": ")
    required = {"message-id": "1:2", "producer-name": "p", "sequence-id": "0", "publish-time": "2026-01-01T00:00:00Z"}
    headers = {f"x-pulsar-{one}": value for one, value in required.items()} | {name: text}
    assert EntryMetadata.from_headers(headers).txn_uncommitted is uncommitted


def test_entry_without_headers_raises():
    """A response without the broker's headers raises."""
    with pytest.raises(ValueError):
        EntryMetadata.from_headers({"server": "nginx"})


def test_query_has_java_form():
    """Booleans are lower case and None is omitted; only reads and idempotent requests may be repeated."""
    request = Request("GET", "x", nothing, params={"a": True, "b": None, "c": 3})
    assert request.query() == {"a": "true", "c": "3"}
    assert request.may_repeat
    assert not _request().may_repeat
    assert Request("PUT", "x", nothing, idempotent=True).may_repeat


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.skip_entries(_TOPIC, "s", -1),
        lambda admin: admin.skip_entries(_TOPIC, "s", count=True),
        lambda admin: admin.skip_entries(_TOPIC, "s", 2**31),
        lambda admin: admin.skip_entries(_TOPIC, "s", 1.0),
        lambda admin: admin.skip_entries(_TOPIC, "", 1),
        lambda admin: admin.reset_cursor(_TOPIC, "s", {}),
        lambda admin: admin.expire_messages(_TOPIC, "s", "latest"),
        lambda admin: admin.peek(_TOPIC, "s", 0),
        lambda admin: admin.entry(_TOPIC, -1, 0),
        lambda admin: admin.entry("t/n/a/b", 1, 0),
        lambda admin: admin.create_partitioned_topic(_TOPIC, 0),
        lambda admin: admin.topics("t"),
        lambda admin: admin.namespaces("t/n"),
        lambda admin: admin.delete_namespace("t/../n"),
        lambda admin: admin.delete_tenant(".."),
    ],
)
def test_invalid_arguments_send_nothing(call):
    """Invalid arguments raise InvalidUse without a request, on an admin URL that nothing listens on."""
    with PulsarAdmin("http://127.0.0.1:1", max_attempts=1) as admin, pytest.raises(InvalidUse):
        call(admin)


def test_non_persistent_topics_have_no_cursor():
    """Calls that need a cursor raise for a non-persistent topic without a request."""
    with (
        PulsarAdmin("http://127.0.0.1:1", max_attempts=1) as admin,
        pytest.raises(AdminNotAllowed, match="non-persistent"),
    ):
        admin.skip_entries("non-persistent://t/n/topic", "s", 1)
