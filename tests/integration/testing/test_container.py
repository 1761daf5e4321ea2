"""The broker as a container: every profile on the small image of `docker/`, and removal with its owner.

If no container can run, the tests are skipped with the reason; with `PULSAR_EXT_REQUIRE_CONTAINERS=1` they fail.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid

import httpx2
import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from pulsar_ext.errors import BrokerStartError
from pulsar_ext.testing import PROFILES, PulsarContainer, start_broker
from pulsar_ext.testing.access import Access
from pulsar_ext.testing.image import choose_image
from pulsar_ext.testing.ports import free_port

_GONE_SECONDS = 60


pytestmark = pytest.mark.usefixtures("containers")
_OF_ONE_CONTAINER = pytest.mark.xdist_group("container")


@pytest.fixture(scope="module")
def plain(containers):
    with PulsarContainer() as broker:
        yield broker


class _Person(Record):
    name = String()
    age = Integer()


def _connect(broker):
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(broker.service_url, logger=logger, **broker.client_options(pulsar))


def _admin(broker):
    return httpx2.Client(base_url=f"{broker.admin_url}/admin/v2", timeout=30, **broker.access.http_options())


def _ask(admin, method, path, **arguments):
    answer = admin.request(method, path, **arguments)
    assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
    return answer.json() if answer.content else None


def _use_every_feature(broker, client, admin, namespace):
    """Use everything that tests need of a broker, so that a class that the image lacks is detected."""
    topic = f"persistent://{namespace}/batches"
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    for compression in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"):
        producer = client.create_producer(topic, compression_type=getattr(pulsar.CompressionType, compression))
        for number in range(20):
            producer.send_async(b"%d" % number * 50, None)
        producer.flush()
        received = [consumer.receive(20_000) for _ in range(20)]
        for message in received:
            consumer.acknowledge(message)
        assert [message.data() for message in received] == [b"%d" % number * 50 for number in range(20)]
        producer.close()

    topic = f"persistent://{namespace}/chunks"
    consumer = client.subscribe(topic, "s")
    large = os.urandom(6_000_000 if broker.profile.name != "small-chunks" else 300_000)
    client.create_producer(topic, chunking_enabled=True, batching_enabled=False).send(large)
    assert consumer.receive(20_000).data() == large

    for schema in (JsonSchema(_Person), AvroSchema(_Person)):
        topic = f"persistent://{namespace}/{type(schema).__name__}"
        consumer = client.subscribe(topic, "s", schema=schema)
        client.create_producer(topic, schema=schema).send(_Person(name="Ada", age=36))
        assert consumer.receive(20_000).value().name == "Ada"
        assert "age" in _ask(admin, "GET", f"/schemas/{namespace}/{type(schema).__name__}/schema")["data"]

    producer = client.create_producer(f"persistent://{namespace}/keys", batching_enabled=False)
    for number in range(30):
        producer.send(b"%d" % number, partition_key=str(number % 3))
    keys = f"/persistent/{namespace}/keys"
    _ask(admin, "PUT", f"{keys}/compaction")
    while (state := _ask(admin, "GET", f"{keys}/compaction"))["status"] == "RUNNING":
        time.sleep(0.1)
    assert state["status"] == "SUCCESS", state
    reader = client.create_reader(f"persistent://{namespace}/keys", pulsar.MessageId.earliest, is_read_compacted=True)
    assert [reader.read_next(20_000).data() for _ in range(3)] == [b"27", b"28", b"29"]

    before = {ledger["ledgerId"] for ledger in _ask(admin, "GET", f"{keys}/internalStats")["ledgers"]}
    _ask(admin, "PUT", f"{keys}/unload")
    producer.send(b"on a new ledger", partition_key="x")
    assert {ledger["ledgerId"] for ledger in _ask(admin, "GET", f"{keys}/internalStats")["ledgers"]} - before
    assert _ask(admin, "GET", f"{keys}/stats")["msgInCounter"] > 0
    _ask(admin, "PUT", f"/persistent/{namespace}/parts/partitions", json=3)
    client.create_producer(f"persistent://{namespace}/parts").send(b"x")
    for path in ("/brokers/health", "/brokers/configuration/runtime", "/broker-stats/metrics", "/bookies/all"):
        assert admin.get(path).is_success, path


# mtls loads what tls does, oauth2 what auth does, and basic is tested below. The profiles on demand differ from the
# other three in a setting or two.
@pytest.mark.core(slow="a container starts twice")
@pytest.mark.parametrize(
    "profile",
    [
        name if name in {"plain", "auth", "mtls"} else pytest.param(name, marks=pytest.mark.on_demand)
        for name in PROFILES
        if name not in {"tls", "basic", "oauth2"}
    ],
)
def test_every_profile_has_all_features_and_keeps_its_data(engine, profile):
    """On each profile all features work, no class is missing, and a killed broker restarts with its data and URLs."""
    with PulsarContainer(profile) as broker, _admin(broker) as admin:
        if profile == "auth":
            _check_authentication_and_secrets(engine, broker)
        urls = broker.service_url, broker.admin_url
        namespace = f"public/{uuid.uuid4().hex[:8]}"
        _ask(admin, "PUT", f"/namespaces/{namespace}")
        in_force = _ask(admin, "GET", "/brokers/configuration/runtime")
        for name, value in broker.profile.settings.items():
            # The broker shows lists in brackets, and hides secrets.
            assert in_force[name].strip("[]").replace(", ", ",") in (value, "*****"), name
        with contextlib.closing(_connect(broker)) as client:
            _use_every_feature(broker, client, admin, namespace)
            kept = client.create_producer(f"persistent://{namespace}/kept").send(b"kept")

        broker.kill()
        assert not broker.is_running()
        broker.restart()

        assert (broker.service_url, broker.admin_url) == urls
        with contextlib.closing(_connect(broker)) as client:
            reader = client.create_reader(f"persistent://{namespace}/kept", pulsar.MessageId.earliest)
            message = reader.read_next(20_000)
            assert (message.data(), message.message_id()) == (b"kept", kept)
        missing = re.findall(
            r"\w*(?:NoClassDefFound|ClassNotFound|UnsatisfiedLink|NoSuchMethod)\w*.*", broker.log_text()
        )
        assert missing == []


def test_anonymous_access_is_rejected_and_no_secret_shows(engine):
    """A request without credentials is rejected; key, token and password are in no repr, log or environment."""
    with PulsarContainer("basic") as broker:
        check = engine.containers.get(broker.container_id).exec_run(["/pulsar/bin/healthcheck"])
        assert check.exit_code == 0 or broker.image.startswith("apachepulsar/")
        _check_authentication_and_secrets(engine, broker)


def _check_authentication_and_secrets(engine, broker):
    anonymous = Access(trust_certs=broker.access.trust_certs).http_options()
    bare = httpx2.get(f"{broker.admin_url}/admin/v2/namespaces/public/default", **anonymous)
    assert bare.status_code == 401
    seen = [
        repr(broker),
        broker.describe(),
        broker.log_text(),
        str(engine.containers.get(broker.container_id).attrs),
    ]
    secrets = [broker.token.rsplit(".", 1)[1], *(broker.access.basic or ())[1:]]
    assert [text for text in seen if any(secret in text for secret in secrets)] == []
    assert "data:;base64" not in seen[-1]


@_OF_ONE_CONTAINER
def test_ports_are_on_the_loopback_and_user_is_not_root(engine, plain):
    """Every published port is bound to the loopback, and the broker runs as an ordinary user."""
    container = engine.containers.get(plain.container_id)
    bindings = [binding for port in container.ports.values() for binding in port or []]

    assert {binding["HostIp"] for binding in bindings} == {"127.0.0.1"}
    assert len(bindings) == 2
    assert container.exec_run(["id", "-u"]).output.strip() == b"10000"


@_OF_ONE_CONTAINER
def test_health_check_detects_a_missing_broker(engine, plain):
    """The health check succeeds while the broker serves, and fails in a container without a broker."""
    if plain.image.startswith("apachepulsar/"):
        pytest.skip("the official image has no health check")
    assert engine.containers.get(plain.container_id).exec_run(["/pulsar/bin/healthcheck"]).exit_code == 0

    idle = engine.containers.run(plain.image, ["sleep", "60"], detach=True)
    try:
        assert idle.exec_run(["/pulsar/bin/healthcheck"]).exit_code != 0
    finally:
        idle.remove(force=True, v=True)


@_OF_ONE_CONTAINER
def test_log_since_an_offset_has_later_lines(plain):
    """The log since an offset has only later lines."""
    with contextlib.closing(_connect(plain)) as client:
        client.create_producer("before-the-offset").send(b"x")
        time.sleep(0.1)
        offset = plain.log_offset()
        client.create_producer("after-the-offset").send(b"x")
    since = plain.log_text(offset)
    assert "after-the-offset" in since
    whole = plain.log_text()
    assert since in whole
    assert "before-the-offset" in whole[: whole.index(since)]


@_OF_ONE_CONTAINER
def test_image_is_small(engine, plain):
    """The image of `docker/` takes less than 200 MB."""
    if not plain.image.startswith("pulsar-ext-standalone:"):
        pytest.skip("another image was chosen")
    assert engine.images.get(plain.image).attrs["Size"] < 200_000_000


def test_sigterm_stops_the_broker_cleanly(engine):
    """The broker gets the engine's stop signal and exits by it, before the engine kills it."""
    with PulsarContainer() as broker:
        container = engine.containers.get(broker.container_id)
        container.stop(timeout=60)
        container.reload()
        assert container.attrs["State"]["ExitCode"] == 128 + signal.SIGTERM
        assert not broker.is_running()


def test_container_that_exits_is_reported_with_its_log(engine):
    """A broker that cannot start raises an error with the end of its log before the timeout, and leaves nothing."""
    ended = {"label": f"pulsar-ext.owner-pid={os.getpid()}", "status": "exited"}
    others = engine.containers.list(all=True, filters=ended)  # parts of a cluster, which does not belong to this test
    with pytest.raises(BrokerStartError, match=r"exited during its start[\s\S]*[Hh]eap"):
        PulsarContainer(heap="1k", start_timeout=3600).start()

    assert [one for one in engine.containers.list(all=True, filters=ended) if one not in others] == []


def test_missing_image_is_named_in_the_error():
    """A wrong image name is a `BrokerStartError` with the name, not the engine's exception."""
    with pytest.raises(BrokerStartError, match="pulsar-ext-no-such-image:1"):
        PulsarContainer(image="pulsar-ext-no-such-image:1").start()


def test_stop_removes_the_container_and_its_data(engine):
    """After a stop the engine has neither the container nor its volume, and a second stop does nothing."""
    broker = PulsarContainer().start()
    container = engine.containers.get(broker.container_id)
    volumes = [mount["Name"] for mount in container.attrs["Mounts"]]

    broker.stop()
    broker.stop()

    assert not _exists(engine, container.id)
    assert volumes
    assert not {volume.name for volume in engine.volumes.list()} & set(volumes)
    assert not broker.is_running()


def test_killed_owner_leaves_no_container_and_no_secret(engine, tmp_path):
    """After a SIGKILL of the process that started a broker, only its container is removed, with its secrets."""
    program = (
        "import time\nfrom pulsar_ext.testing import PulsarContainer\n"
        "broker = PulsarContainer().start()\nprint(broker.container_id, flush=True)\ntime.sleep(600)\n"
    )
    bystander = engine.containers.create(choose_image(), ["sleep", "60"])
    try:
        environment = os.environ | {"TMPDIR": str(tmp_path)}
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
            container_id = owner.stdout.readline().strip()
            assert len(list(tmp_path.iterdir())) > 1  # its secrets, and the file of reserved ports
            assert _exists(engine, container_id)
            owner.kill()

        deadline = time.monotonic() + _GONE_SECONDS
        while _exists(engine, container_id):
            assert time.monotonic() < deadline, "the container is still there"
            time.sleep(0.2)
        [ports] = tmp_path.iterdir()  # the file of reserved ports stays, and is empty
        assert ports.name.startswith("pulsar-ext-ports-")
        assert ports.stat().st_size == 0
        assert _exists(engine, bystander.id)
    finally:
        bystander.remove(force=True, v=True)


def _exists(engine, container_id):
    # Sparse: the list of all containers inspects each, which fails if another test removes one of its own.
    return bool(engine.containers.list(all=True, filters={"id": container_id}, sparse=True))


def test_container_has_the_given_ports(containers):
    """A container listens on the given ports, also after a restart; a port in use is named in the error."""
    broker_port, admin_port = free_port(), free_port()
    with start_broker("docker", broker_port=broker_port, admin_port=admin_port) as broker:
        assert (broker.service_url, broker.admin_url) == (
            f"pulsar://localhost:{broker_port}",
            f"http://localhost:{admin_port}",
        )
        with pytest.raises(BrokerStartError, match="is in use"), PulsarContainer(broker_port=broker_port):
            pass
