"""A broker on a Docker network: containers of the network and the host use it with different URLs."""

import contextlib
import io
import tarfile
import uuid
from pathlib import Path

import pulsar
import pytest
from java_peer import java_classes
from testcontainers.core.network import Network

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.errors import BrokerStartError, InvalidUse
from pulsar_ext.testing import PulsarContainer

pytestmark = pytest.mark.usefixtures("containers")

SECONDS = 120


@pytest.fixture(scope="module")
def peer():
    """Return the classes of the client in a container; the small image has no compiler."""
    return {path.name: path.read_bytes() for path in java_classes().glob("NetworkPeer*.class")}


@pytest.fixture
def network(containers):
    """Return a Docker network."""
    with Network() as made:
        yield made


def run_on(engine, network, image, files, command):
    """Run a Java program in a container of the network and return its lines."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    container = engine.containers.create(image, command, network=network.name)
    try:
        container.put_archive("/tmp", packed.getvalue())
        container.start()
        status = container.wait(timeout=SECONDS)["StatusCode"]
        output = container.logs().decode()
        assert status == 0, output[-4000:]
        return output.splitlines()
    finally:
        container.remove(force=True, v=True)


@pytest.mark.parametrize("profile", ["plain", "tls"])
def test_network_and_host_use_one_broker(engine, network, peer, profile):
    """Partitioned topics are looked up, written and read from both sides, each with its URL, also after a restart."""
    container = PulsarContainer(profile).with_network(network).with_network_aliases("pulsar", "pulsar.test")
    with container as broker:
        scheme, web = ("pulsar+ssl", "https") if profile == "tls" else ("pulsar", "http")
        assert broker.network_service_url == f"{scheme}://pulsar:6650"
        assert broker.network_admin_url == f"{web}://pulsar:8080"
        trusted = broker.access.trust_certs
        files = dict(peer) | ({"ca.pem": Path(trusted).read_bytes()} if trusted else {})
        for is_again in (False, True):
            if is_again:
                broker.restart()
            source, target = (f"persistent://public/default/{uuid.uuid4().hex}" for _ in range(2))
            with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
                for topic in (source, target):
                    admin.create_partitioned_topic(topic, 3)
            payloads = [b"%d" % number for number in range(20)]
            quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            client = pulsar.Client(broker.service_url, logger=quiet, **broker.client_options(pulsar))
            with contextlib.closing(client):
                consumer = client.subscribe(target, "host")
                producer = client.create_producer(source)
                for payload in payloads:
                    producer.send(payload, partition_key=payload.decode())

                urls = [broker.network_service_url, broker.network_admin_url, "/tmp/ca.pem" if trusted else "-"]
                command = [
                    "java",
                    "-Xmx128m",
                    "-XX:TieredStopAtLevel=1",
                    "-XX:+UseSerialGC",
                    "-cp",
                    "/tmp:/pulsar/lib/*",
                    "NetworkPeer",
                ]
                output = run_on(engine, network, broker.image, files, [*command, *urls, source, target, "20"])

                assert {"client 3", "admin 3"} <= set(output)
                received = {line.partition(" ")[2].encode() for line in output if line.startswith("received ")}
                assert received == set(payloads)
                assert {consumer.receive(20_000).data() for _ in payloads} == set(payloads)


def test_container_name_is_the_default_alias(engine, network):
    """Without aliases the URLs have the container's name, and a container of the network resolves it."""
    with PulsarContainer(network=network) as broker:
        name = engine.containers.get(broker.container_id).name
        assert broker.network_service_url == f"pulsar://{name}:6650"
        answer = f"exec 3<>/dev/tcp/{name}/8080; printf 'GET /admin/v2/clusters HTTP/1.0\r\n\r\n' >&3; cat <&3"
        assert "standalone" in run_on(engine, network, broker.image, {}, ["bash", "-c", answer])[-1]


def test_invalid_use_of_a_network_raises(network):
    """Bad aliases, listeners of the caller, aliases or URLs without a network, and a late join raise."""
    with pytest.raises(InvalidUse, match="no underscore"):
        PulsarContainer(network=network, network_aliases=["my_pulsar"])
    with pytest.raises(InvalidUse, match="sets advertisedListeners: omit"):
        PulsarContainer(settings={"advertisedListeners": "x:pulsar://x:1"}).with_network(network)
    with pytest.raises(InvalidUse, match="need a network"):
        PulsarContainer(network_aliases=["pulsar"]).start()
    with pytest.raises(InvalidUse, match="has no Docker network"):
        _ = PulsarContainer().network_service_url
    with pytest.raises(BrokerStartError, match="no address before it is started"):
        _ = PulsarContainer(network=network).network_admin_url
