"""The admin API against real brokers: each operation, each kind of error, odd names, failing networks, forks."""

import asyncio
import http.server
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pulsar
import pytest

from pulsar_ext.admin import AsyncPulsarAdmin, Persistence, PulsarAdmin, Retention
from pulsar_ext.errors import (
    AdminConflict,
    AdminError,
    AdminNotAllowed,
    AdminNotFound,
    AdminPrecondition,
    AdminUnauthorized,
    AdminUnavailable,
)
from pulsar_ext.ids.position import Position, PositionRange
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.testing import Profile
from pulsar_ext.testing.profiles import get_profile

BOTH_CLIENTS = True

_SMALL = Profile(
    "admin",
    "small chunks, ten entries a ledger, entries numbered and time-stamped",
    {
        "maxMessageSize": "102400",
        "managedLedgerMaxEntriesPerLedger": "10",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor,"
        "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor",
        "exposingBrokerEntryMetadataToClientEnabled": "true",
    },
)

# Who comes without a token is a role that may do nothing.
_NOBODY = Profile(
    "auth-anonymous",
    "token authentication, authorization on, and a role without permissions for those without a token",
    {**get_profile("auth").settings, "anonymousUserRole": "nobody"},
    authentication=True,
)


@pytest.fixture(scope="module")
def broker(pulsar_broker_factory):
    return pulsar_broker_factory(_SMALL)


@pytest.fixture(scope="module")
def admin(broker, admin_class):
    with admin_class(broker.admin_url, token=broker.token) as made:
        yield made


@pytest.fixture(scope="module")
def client(broker):
    made = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture
def namespace(broker, admin, pulsar_namespace_factory):
    name = pulsar_namespace_factory(broker)
    # So that acknowledged ledgers are still there for what a test looks up.
    admin.set_retention(name, Retention(minutes=60, size_mib=100))
    return name


@pytest.fixture
def topic(namespace, admin):
    name = f"persistent://{namespace}/topic"
    admin.create_topic(name)
    admin.create_subscription(name, "s", "earliest")
    return name


@pytest.fixture
def parent(namespace, admin):
    name = f"persistent://{namespace}/parent"
    admin.create_partitioned_topic(name, 2)
    admin.create_subscription(name, "s", "earliest")
    return name


@pytest.fixture
def silent_port():
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _fill(client, topic, count=25):
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"%d" % number) for number in range(count)]
    producer.close()
    return [Position(each.ledger_id(), each.entry_id()) for each in ids]


def _mark_delete(admin, topic, subscription="s"):
    return admin.internal_stats(topic).cursors[subscription].mark_delete_position


# -- statistics and entries ------------------------------------------------------------------------------------------


def test_stats_show_ledgers_and_cursors(admin, client, topic):
    """Three ledgers of 10, 10 and 5 entries, with holes in one cursor, are read as they are."""
    positions = _fill(client, topic)
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    messages = [consumer.receive(5000) for _ in positions]
    for number in (0, 2, 3, 7):
        consumer.acknowledge(messages[number])
    stats = admin.stats(topic)
    assert stats.messages_in == 25
    assert len(stats.subscriptions["s"].consumers) == 1
    consumer.close()
    internal = admin.internal_stats(topic)
    assert [ledger.entries for ledger in internal.ledgers] == [10, 10, 0]
    assert internal.current_ledger_entries == 5
    assert internal.number_of_entries == 25
    assert internal.last_confirmed_entry == positions[-1]
    cursor = internal.cursors["s"]
    assert cursor.mark_delete_position == positions[0]
    assert cursor.individually_deleted == (
        PositionRange(positions[1], positions[3]),
        PositionRange(positions[6], positions[7]),
    )
    assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 21
    analysis = admin.analyze_backlog(topic, "s")
    assert (analysis.entries, analysis.messages, analysis.first) == (21, 21, positions[1])


@pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")  # all its keys are the same one
def test_entry_headers_of_batches_chunks_and_plain_messages(admin, client, topic):
    """Headers tell a batch and its size, each chunk and its place, keys, properties, null values and the index."""
    batched = client.create_producer(
        topic, "batched", batching_enabled=True, batching_max_publish_delay_ms=5000, batching_max_messages=100
    )
    for number in range(5):
        batched.send_async(b"x%d" % number, lambda *_: None, partition_key="kéy", properties={"n": str(number)})
    batched.flush()
    batched.close()
    chunked = client.create_producer(topic, "chunked", batching_enabled=False, chunking_enabled=True)
    chunked.send(
        os.urandom(250_000), partition_key="k", ordering_key="o", properties={"ü": "1"}, event_timestamp=123456
    )
    chunked.send(None)
    chunked.close()
    ledger = admin.internal_stats(topic).ledgers[0].ledger_id

    batch = admin.entry(topic, ledger, 0)
    assert (batch.position, batch.message_count, batch.is_chunk) == (Position(ledger, 0), 5, False)
    assert (batch.producer_name, batch.sequence_id, batch.partition_key, batch.index) == ("batched", 0, "kéy", 4)
    assert batch.batch_size > 0
    assert abs(batch.publish_time / 1000 - time.time()) < 60
    assert abs(batch.broker_timestamp - batch.publish_time) < 60_000

    chunks = [admin.entry(topic, ledger, entry) for entry in (1, 2, 3)]
    assert [chunk.chunk_id for chunk in chunks] == [0, 1, 2]
    assert {(chunk.num_chunks, chunk.total_chunk_size, chunk.uuid) for chunk in chunks} == {
        (3, 250_000, chunks[0].uuid)
    }
    assert all(chunk.is_chunk and chunk.message_count == 1 and chunk.payload is None for chunk in chunks)
    assert (chunks[0].ordering_key, chunks[0].properties, chunks[0].event_time) == (b"o", {"ü": "1"}, 123456)
    whole = [admin.entry(topic, ledger, entry, payload=True) for entry in (1, 2, 3)]
    assert sum(len(chunk.payload) for chunk in whole) == 250_000

    assert admin.entry(topic, ledger, 4).null_value
    assert admin.peek(topic, "s") == batch
    assert admin.peek(topic, "s", 3).chunk_id == 1
    assert admin.examine(topic).null_value
    assert admin.examine(topic, 2, initial_position="earliest").chunk_id == 0


def test_entries_that_do_not_exist_are_not_found(admin, client, topic):
    """The broker's 404 and its various 500s all become AdminNotFound, with the broker's reason."""
    positions = _fill(client, topic)
    first, last = positions[0].ledger_id, positions[-1].ledger_id
    for ledger, entry in ((first, 10), (first, 999), (last, 5), (last + 1000, 0)):
        with pytest.raises(AdminNotFound) as caught:
            admin.entry(topic, ledger, entry)
        assert caught.value.reason
        assert "Stacktrace" not in str(caught.value)
    with pytest.raises(AdminNotFound):
        admin.peek(topic, "s", 26)
    with pytest.raises(AdminNotFound):
        admin.examine(topic, 26)


def test_positions_by_index_and_time(admin, client, topic):
    """An index gives its entry across ledgers, a time the first entry at or after it; past the end it is said so."""
    assert admin.message_id_by_time(topic, 1).entry_id == 0
    positions = _fill(client, topic)
    assert [admin.message_id_by_index(topic, index) for index in (0, 9, 10, 24)] == [
        positions[index] for index in (0, 9, 10, 24)
    ]
    with pytest.raises(AdminNotFound):
        admin.message_id_by_index(topic, 25)
    published = admin.entry(topic, positions[12].ledger_id, positions[12].entry_id).publish_time
    assert positions[0] < admin.message_id_by_time(topic, published) <= positions[12]
    end = admin.message_id_by_time(topic, int(time.time() * 1000) + 3_600_000)
    assert end == Position(positions[-1].ledger_id, positions[-1].entry_id + 1)
    assert admin.message_id_by_time(topic, 0) == Position(-1, -1)


# -- cursors ---------------------------------------------------------------------------------------------------------


def test_skip_counts_entries_and_passes_holes(admin, client, topic):
    """Skipping goes across ledgers, leaves out what is acknowledged, does nothing for 0 and stops at the end."""
    positions = _fill(client, topic)
    admin.skip_entries(topic, "s", 0)
    assert _mark_delete(admin, topic).entry_id == -1
    admin.skip_entries(topic, "s", 12)
    assert _mark_delete(admin, topic) == positions[11]
    admin.skip_entries(topic, "s", 2**31 - 1)
    assert _mark_delete(admin, topic) == positions[-1]
    admin.reset_cursor(topic, "s", "earliest")
    admin.skip_all(topic, "s")
    assert _mark_delete(admin, topic) == positions[-1]


def test_reset_lands_where_it_says(admin, client, topic):
    """By position, included or not, by either end and by time; consumers then read on from there."""
    positions = _fill(client, topic)
    admin.reset_cursor(topic, "s", positions[12])
    assert _mark_delete(admin, topic) == positions[11]
    admin.reset_cursor(topic, "s", positions[12], excluded=True)
    assert _mark_delete(admin, topic) == positions[12]
    consumer = client.subscribe(topic, "s")
    assert consumer.receive(5000).data() == b"13"
    consumer.close()
    admin.reset_cursor(topic, "s", "latest")
    assert _mark_delete(admin, topic) == positions[-1]
    admin.reset_cursor(topic, "s", "earliest")
    assert _mark_delete(admin, topic).entry_id == -1
    admin.skip_all(topic, "s")
    admin.reset_cursor_to_time(topic, "s", 1)
    assert _mark_delete(admin, topic).entry_id == -1
    end = Position(positions[-1].ledger_id, positions[-1].entry_id + 1)
    admin.reset_cursor(topic, "s", end)
    assert _mark_delete(admin, topic) == positions[-1]


def test_cursors_are_never_put_beyond_the_end(admin, client, topic):
    """The broker would go to the end, or past it and lose what comes; so nothing is moved and nothing created."""
    positions = _fill(client, topic)
    before = _mark_delete(admin, topic)
    last = positions[-1]
    for beyond in (Position(last.ledger_id, last.entry_id + 2), Position(last.ledger_id + 1000, 0)):
        for call in (
            lambda where=beyond: admin.reset_cursor(topic, "s", where),
            lambda where=beyond: admin.expire_messages(topic, "s", where),
            lambda where=beyond: admin.create_subscription(topic, "other", where),
        ):
            with pytest.raises(AdminNotFound, match="beyond the end"):
                call()
    assert _mark_delete(admin, topic) == before
    assert admin.subscriptions(topic) == ("s",)


def test_expire_by_position(admin, client, topic):
    """Everything up to the position is acknowledged."""
    positions = _fill(client, topic)
    admin.expire_messages(topic, "s", positions[14])
    deadline = time.monotonic() + 10
    while _mark_delete(admin, topic) != positions[14]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_subscriptions_come_and_go(admin, client, topic):
    """Created at each end and at a position; busy ones are deleted only by force; conflicts and absences are typed."""
    positions = _fill(client, topic)
    admin.create_subscription(topic, "at", positions[12])
    admin.create_subscription(topic, "end")
    assert admin.subscriptions(topic) == ("at", "end", "s")
    assert _mark_delete(admin, topic, "at") == positions[11]
    assert _mark_delete(admin, topic, "end") == positions[-1]
    with pytest.raises(AdminConflict):
        admin.create_subscription(topic, "end")
    consumer = client.subscribe(topic, "end")
    with pytest.raises(AdminPrecondition):
        admin.delete_subscription(topic, "end")
    consumer.close()
    admin.delete_subscription(topic, "end")
    admin.delete_subscription(topic, "at", force=True)
    with pytest.raises(AdminNotFound):
        admin.delete_subscription(topic, "end")


def test_absent_subscriptions_are_not_created_by_looking(admin, client, topic):
    """The broker's position call would create a subscription; peek looks first, and all others say it is missing."""
    positions = _fill(client, topic, 3)
    for call in (
        lambda: admin.peek(topic, "absent"),
        lambda: admin.skip_entries(topic, "absent", 1),
        lambda: admin.skip_all(topic, "absent"),
        lambda: admin.reset_cursor(topic, "absent", "earliest"),
        lambda: admin.reset_cursor_to_time(topic, "absent", 1),
        lambda: admin.expire_messages(topic, "absent", positions[0]),
        lambda: admin.analyze_backlog(topic, "absent"),
    ):
        with pytest.raises(AdminNotFound, match="absent") as caught:
            call()
        assert caught.value.status == 404
    assert admin.subscriptions(topic) == ("s",)


# -- topics ----------------------------------------------------------------------------------------------------------


def test_partitioned_parent_is_refused_or_fanned_out(admin, parent):
    """Calls that need one partition name the partitions and change nothing; the others cover every partition."""
    names = [str(TopicName.parse(parent).partition(index)) for index in (0, 1)]
    before = {name: stats.cursors for name, stats in admin.partitioned_internal_stats(parent).items()}
    for call in (
        lambda: admin.stats(parent),
        lambda: admin.internal_stats(parent),
        lambda: admin.entry(parent, 1, 1),
        lambda: admin.examine(parent),
        lambda: admin.message_id_by_index(parent, 0),
        lambda: admin.message_id_by_time(parent, 1),
        lambda: admin.skip_entries(parent, "s", 1),
        lambda: admin.reset_cursor(parent, "s", "earliest"),
        lambda: admin.expire_messages(parent, "s", Position(1, 1)),
        lambda: admin.peek(parent, "s"),
        lambda: admin.analyze_backlog(parent, "s"),
        lambda: admin.create_subscription(parent, "other", Position(1, 1)),
        lambda: admin.terminate(parent),
        lambda: admin.compaction_status(parent),
    ):
        with pytest.raises(AdminNotAllowed, match="parent-partition-0"):
            call()
    assert admin.subscriptions(parent) == ("s",)
    after = admin.partitioned_internal_stats(parent)
    assert list(after) == names
    assert {name: stats.cursors for name, stats in after.items()} == before
    assert sorted(admin.partitioned_stats(parent).partitions) == names
    admin.skip_all(parent, "s")
    admin.reset_cursor_to_time(parent, "s", 1)
    admin.unload(parent)
    admin.trim(parent)
    admin.truncate(parent)
    admin.compact(parent)
    assert list(admin.terminate_partitions(parent)) == names


def test_topics_come_and_go(admin, client, namespace):
    """Creating, listing, enlarging, terminating and deleting, partitioned and not, with the errors on the way."""
    plain, parent = f"persistent://{namespace}/plain", f"persistent://{namespace}/parent"
    admin.create_topic(plain)
    admin.create_partitioned_topic(parent, 2)
    for create in (lambda: admin.create_topic(plain), lambda: admin.create_partitioned_topic(parent, 2)):
        with pytest.raises(AdminConflict):
            create()
    admin.update_partitions(parent, 3)
    with pytest.raises(AdminError) as caught:
        admin.update_partitions(parent, 1)
    assert caught.value.status == 422
    assert (admin.partitions(plain), admin.partitions(parent)) == (0, 3)
    assert admin.partitioned_topics(namespace) == (parent,)
    assert admin.topics(namespace) == (*(f"{parent}-partition-{index}" for index in range(3)), plain)
    positions = _fill(client, plain, 3)
    admin.create_subscription(plain, "s")
    # Before the end: a consumer of a terminated topic does not keep it.
    consumer = client.subscribe(plain, "s")
    with pytest.raises(AdminPrecondition):
        admin.delete_topic(plain)
    assert admin.terminate(plain) == positions[-1]
    assert admin.internal_stats(plain).state == "Terminated"
    with pytest.raises(AdminConflict):
        admin.delete_topic(parent)
    admin.delete_topic(plain, force=True)
    consumer.close()
    admin.delete_partitioned_topic(parent)
    assert admin.topics(namespace) == ()
    for call in (
        admin.stats,
        admin.partitions,
        admin.delete_topic,
        admin.delete_partitioned_topic,
        admin.internal_stats,
    ):
        with pytest.raises(AdminNotFound, match=namespace):
            call(plain)


@pytest.mark.parametrize(
    "name", ["a b", "50%", "a%2Fb", "a+b", "q?x=1&y", "h#f", "ünï🎉", "semi;x=1", "back\\slash", "'\"<>", "..x", "a\tb"]
)
def test_odd_names_reach_the_broker_unchanged(admin, client, namespace, name):
    """A topic and a subscription of this name are the very ones the binary protocol knows by it."""
    topic = f"persistent://{namespace}/{name}"
    admin.create_topic(topic)
    assert admin.topics(namespace) == (topic,)
    admin.create_subscription(topic, name, "earliest")
    assert admin.subscriptions(topic) == (name,)
    _fill(client, topic, 3)
    admin.skip_entries(topic, name, 1)
    assert admin.peek(topic, name).position.entry_id == 1
    consumer = client.subscribe(topic, name)
    assert consumer.receive(5000).data() == b"1"
    consumer.close()
    admin.reset_cursor(topic, name, "latest")
    assert admin.analyze_backlog(topic, name).entries == 0
    admin.delete_subscription(topic, name)
    admin.delete_topic(topic)
    assert admin.topics(namespace) == ()


def test_non_persistent_topics(admin, namespace):
    """They are created, listed and measured; what needs a cursor is refused before anything is sent."""
    topic = f"non-persistent://{namespace}/topic"
    admin.create_topic(topic)
    assert admin.topics(namespace, is_persistent=False) == (topic,)
    assert admin.stats(topic).messages_in == 0
    with pytest.raises(AdminNotAllowed, match="non-persistent"):
        admin.skip_entries(topic, "s", 1)
    admin.delete_topic(topic)


# -- namespaces, tenants, brokers ------------------------------------------------------------------------------------


def test_namespace_policies_are_set_read_and_removed(admin, namespace):
    """Each policy is None until set, reads back as set, and None again once removed."""
    assert admin.retention(namespace) == Retention(60, 100)
    for get, put, value in (
        (admin.retention, admin.set_retention, Retention(10, 20)),
        (admin.deduplication, admin.set_deduplication, True),
        (admin.deduplication, admin.set_deduplication, False),
        (admin.persistence, admin.set_persistence, Persistence(1, 1, 1, 5.0)),
        (admin.message_ttl, admin.set_message_ttl, 77),
    ):
        put(namespace, value)
        assert get(namespace) == value
        put(namespace, None)
        assert get(namespace) is None
    admin.set_backlog_quota(namespace, limit_bytes=10**9, policy="producer_exception")
    assert admin.policies(namespace).backlog_quotas["destination_storage"]["limitSize"] == 10**9
    admin.remove_backlog_quota(namespace)
    admin.set_deduplication(namespace, value=True)
    policies = admin.policies(namespace)
    assert (policies.backlog_quotas, policies.deduplication, policies.retention) == ({}, True, None)


def test_tenants_namespaces_and_clusters(admin, broker):
    """Creating, listing and deleting, with the errors on the way; the broker tells its settings, version and health."""
    tenant = f"tenant-{os.urandom(4).hex()}"
    admin.create_tenant(tenant)
    try:
        assert tenant in admin.tenants()
        with pytest.raises(AdminConflict):
            admin.create_tenant(tenant)
        admin.create_namespace(f"{tenant}/n", bundles=2)
        with pytest.raises(AdminConflict):
            admin.create_namespace(f"{tenant}/n")
        assert admin.namespaces(tenant) == (f"{tenant}/n",)
        assert admin.policies(f"{tenant}/n").raw["bundles"]["numBundles"] == 2
        admin.create_topic(f"{tenant}/n/topic")
        with pytest.raises(AdminConflict):
            admin.delete_namespace(f"{tenant}/n")
        admin.delete_namespace(f"{tenant}/n", force=True)
    finally:
        admin.delete_tenant(tenant, force=True)
    with pytest.raises(AdminNotFound):
        admin.namespaces(tenant)
    (cluster,) = admin.clusters()
    assert admin.cluster(cluster).broker_service_url.startswith("pulsar://")
    assert admin.broker_configuration()["maxMessageSize"] == "102400"
    assert admin.broker_version()
    assert admin.health()


# -- credentials and networks ----------------------------------------------------------------------------------------


def test_wrong_and_missing_tokens(pulsar_broker_factory, pulsar_namespace_factory):
    """A 401 becomes AdminUnauthorized without the token in any text; a callable is asked before each request."""
    broker = pulsar_broker_factory("auth")
    namespace = pulsar_namespace_factory(broker)
    asked = []

    def token():
        asked.append(1)
        return f"{broker.token}\n"

    with PulsarAdmin(broker.admin_url, token=token) as admin:
        admin.create_topic(f"{namespace}/topic")
        assert admin.topics(namespace)
        assert len(asked) == 2
        assert broker.token not in repr(admin)
    header, payload, _ = broker.token.split(".")
    for wrong in (None, "garbage", f"{header}.{payload}.AAAA"):
        with PulsarAdmin(broker.admin_url, token=wrong) as admin:
            for call in (admin.tenants, lambda: admin.skip_entries(f"{namespace}/topic", "s", 1)):
                with pytest.raises(AdminUnauthorized) as caught:
                    call()
                assert caught.value.status == 401
                assert not wrong or wrong not in f"{caught.value}{caught.value.details}"


def test_a_role_without_permission(pulsar_broker_factory):
    """A known role that may not do a thing gets 401 for a topic and 403 for a namespace; both are AdminUnauthorized."""
    with PulsarAdmin(pulsar_broker_factory(_NOBODY).admin_url) as admin:
        for call, status in (
            (lambda: admin.skip_all("topic", "s"), 401),
            (lambda: admin.topics("public/default"), 403),
        ):
            with pytest.raises(AdminUnauthorized, match="role") as caught:
                call()
            assert caught.value.status == status
            assert caught.value.reason


def test_nobody_listens(caplog):
    """A refused connection is retried for reading calls, each pause in the log, and never for skipping."""
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


def test_no_answer_in_time(silent_port):
    """The deadline bounds all attempts together; a changing call that may have arrived is said to."""
    with PulsarAdmin(f"http://127.0.0.1:{silent_port}", timeout_seconds=0.4, deadline_seconds=1.0) as admin:
        start = time.monotonic()
        with pytest.raises(AdminUnavailable):
            admin.clusters()
        assert time.monotonic() - start < 1.5
        with pytest.raises(AdminUnavailable) as caught:
            admin.skip_all("topic", "s")
        assert caught.value.maybe_applied


def test_not_a_web_service(broker):
    """The binary port in place of the web service's is found out and said."""
    url = broker.service_url.replace("pulsar://", "http://")
    with PulsarAdmin(url, max_attempts=1) as admin, pytest.raises(AdminUnavailable, match="webServicePort"):
        admin.clusters()


class _Redirecting(http.server.BaseHTTPRequestHandler):
    """A web service that owns nothing and names the broker that does, as the brokers of a cluster do."""

    target = ""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(307)
        self.send_header("Location", self.target + self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815  # the base class looks for these names

    def log_message(self, *_):
        pass


def test_redirect_to_the_owner_keeps_method_body_and_token(pulsar_broker_factory, pulsar_namespace_factory):
    """A broker that does not own a topic answers 307: the call goes on to the owner with its body and its token."""
    broker = pulsar_broker_factory("auth")
    topic = f"persistent://{pulsar_namespace_factory(broker)}/a b%2F+é"
    handler = type("Handler", (_Redirecting,), {"target": broker.admin_url})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with PulsarAdmin(f"http://127.0.0.1:{server.server_port}", token=broker.token) as admin:
            admin.create_partitioned_topic(topic, 3)
            assert admin.partitions(topic) == 3
        server.shutdown()


def test_redirects_without_end():
    """Brokers that send each other in circles give an error, not a hang."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Redirecting,), {})) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with PulsarAdmin(f"http://127.0.0.1:{server.server_port}") as admin, pytest.raises(AdminError) as caught:
            admin.skip_all("topic", "s")
        assert caught.value.status == 307
        server.shutdown()


# -- threads, forks, event loops -------------------------------------------------------------------------------------


def test_threads_share_one_admin(admin, topic):
    """Sixteen threads with one object get their own answers."""
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda _: admin.internal_stats(topic).ledgers, range(200)))
    assert set(results) == {results[0]}


# Python 3.12 warns of any fork beside threads, which is what this is about.
@pytest.mark.blocking_only("a forked child has no event loop to await anything in")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_opens_its_own_connections(admin, topic):
    """After a fork both processes go on, each over connections of its own."""
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


@pytest.mark.blocking_only("it is about the awaited one already")
def test_asyncio_shell_does_the_same(broker, admin, client, topic, silent_port):
    """Awaited operations run beside each other and give the same values and errors, within the same deadline."""
    positions = _fill(client, topic)

    async def read(later):
        entries = await asyncio.gather(*(later.entry(topic, each.ledger_id, each.entry_id) for each in positions))
        assert [entry.position for entry in entries] == positions
        assert await later.internal_stats(topic) == admin.internal_stats(topic)
        with pytest.raises(AdminNotFound):
            await later.peek(topic, "absent")
        await later.skip_entries(topic, "s", 12)
        assert await later.health()

    async def main():
        async with AsyncPulsarAdmin(broker.admin_url, token=broker.token) as later:
            await read(later)
        url = f"http://127.0.0.1:{silent_port}"
        async with AsyncPulsarAdmin(url, timeout_seconds=0.3, deadline_seconds=0.6) as silent:
            with pytest.raises(AdminUnavailable):
                await silent.clusters()

    asyncio.run(main())
    assert _mark_delete(admin, topic) == positions[11]
