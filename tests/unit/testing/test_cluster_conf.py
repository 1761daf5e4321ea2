"""Configuration of a cluster's parts: each finds the others, and no port is used twice."""

from pathlib import Path

import pytest

from pulsar_ext.errors import BrokerStartError, InvalidUse
from pulsar_ext.testing import PulsarCluster
from pulsar_ext.testing.access import Detour, Route
from pulsar_ext.testing.cluster_conf import Addresses, BrokerPorts, Layout, bookie_conf, broker_conf, zookeeper_conf

DATA = Path("/data")


@pytest.fixture
def addresses():
    return Addresses(1, {"bookie-1": 2, "bookie-2": 3}, {"broker-1": BrokerPorts(4, 5, 6, 7, 8)})


def test_all_ports_are_different():
    """A cluster of any size has different ports, and names for its parts."""
    chosen = Addresses.choose(3, 2)
    ports = [chosen.zookeeper, *chosen.bookies.values(), *(port for one in chosen.brokers.values() for port in one)]
    detours = [
        (one.lock, *(port for route in one.routes for port in (route.port, route.target))) for one in chosen.detours
    ]
    ports += [port for one in detours for port in one]
    assert len(set(ports)) == len(ports) == 1 + 2 + 3 * 5 + len(detours) * (1 + 3 * 2)
    assert chosen.parts == ("zookeeper", "bookie-1", "bookie-2", "broker-1", "broker-2", "broker-3")


def test_urls_of_a_cluster(addresses):
    """The service URLs have all brokers, direct or through the proxies, and each broker has an admin URL."""
    two = addresses._replace(brokers={**addresses.brokers, "broker-2": BrokerPorts(14, 15, 16, 17, 18)})
    assert two.service_url == "pulsar://127.0.0.1:4,127.0.0.1:14"
    assert two.proxied_url == "pulsar://127.0.0.1:7,127.0.0.1:17"
    assert two.admin_urls == ["http://127.0.0.1:5", "http://127.0.0.1:15"]
    assert two.broker_id("broker-2") == "127.0.0.1:15"
    assert two.broker_at("pulsar://localhost:14") == "broker-2"
    with pytest.raises(BrokerStartError, match="not a broker of this cluster"):
        two.broker_at("pulsar://localhost:17")


def test_broker_connects_through_its_proxies(addresses):
    """A broker reaches ZooKeeper through its proxy, and advertises the proxy's address to the proxy's clients."""
    conf = broker_conf("broker-1", addresses, "plain")
    assert conf["metadataStoreUrl"] == conf["configurationMetadataStoreUrl"] == "zk:127.0.0.1:8"
    assert conf["brokerServicePort"] == "4"
    assert conf["bindAddresses"] == "proxied:pulsar://127.0.0.1:6"
    assert "proxied:pulsar://127.0.0.1:7" in conf["advertisedListeners"]
    assert conf["advertisedAddress"] == "127.0.0.1"


@pytest.mark.parametrize("profile", ["tls", "mtls", "basic", "oauth2"])
def test_tls_profile_has_no_plain_port(addresses, profile):
    """Every URL and listener of a profile with TLS uses it, also between brokers."""
    secured = addresses._replace(tls=True)
    conf = broker_conf("broker-1", secured, profile)
    assert (secured.service_url, secured.proxied_url) == ("pulsar+ssl://127.0.0.1:4", "pulsar+ssl://127.0.0.1:7")
    assert secured.admin_urls == ["https://127.0.0.1:5"]
    assert (conf["brokerServicePortTls"], conf["webServicePortTls"]) == ("4", "5")
    assert (conf["brokerServicePort"], conf["webServicePort"]) == ("", "")
    assert conf["brokerClientTlsEnabled"] == "true"
    assert conf["advertisedListeners"] == "internal:pulsar+ssl://127.0.0.1:4,proxied:pulsar+ssl://127.0.0.1:7"
    assert conf["bindAddresses"] == "proxied:pulsar+ssl://127.0.0.1:6"


def test_each_detour_is_a_listener(addresses):
    """The broker has a listener for each detour, and advertises the port of the detour's proxy."""
    detours = tuple(Detour(lock, (Route(lock + 1, "127.0.0.1", lock + 2),)) for lock in (50, 60))
    conf = broker_conf("broker-1", addresses._replace(detours=detours), "plain")
    assert conf["bindAddresses"].split(",")[1:] == ["detour1:pulsar://127.0.0.1:52", "detour2:pulsar://127.0.0.1:62"]
    assert conf["advertisedListeners"].split(",")[2:] == [
        "detour1:pulsar://127.0.0.1:51",
        "detour2:pulsar://127.0.0.1:61",
    ]


def test_profiles_and_settings_reach_the_broker(addresses):
    """The profile's and the caller's settings are set, and the caller's take precedence."""
    conf = broker_conf("broker-1", addresses, "small-chunks", {"loadBalancerSheddingEnabled": True})
    assert conf["maxMessageSize"] == "102400"
    assert conf["loadBalancerSheddingEnabled"] == "true"


@pytest.mark.parametrize(("bookies", "copies"), [(1, "1"), (2, "2"), (3, "2")])
def test_entries_are_on_two_bookies(addresses, bookies, copies):
    """With two bookies or more each entry is on two of them."""
    some = addresses._replace(bookies={f"bookie-{number}": 10 + number for number in range(bookies)})
    conf = broker_conf("broker-1", some, "plain")
    names = ("managedLedgerDefaultEnsembleSize", "managedLedgerDefaultWriteQuorum", "managedLedgerDefaultAckQuorum")
    assert [conf[name] for name in names] == [copies] * 3


def test_bookie_accepts_long_frames(addresses):
    """A bookie has the passed frame limit, and finds ZooKeeper without a path."""
    conf = bookie_conf("bookie-1", addresses, DATA, 5_263_360)
    assert conf["nettyMaxFrameSizeBytes"] == "5263360"
    assert conf["metadataServiceUri"] == "metadata-store:zk:127.0.0.1:1"
    assert conf["bookiePort"] == "2"


def test_everything_is_on_the_loopback(addresses):
    """Every part listens on an address that other machines cannot reach."""
    assert zookeeper_conf(1, DATA)["clientPortAddress"] == "127.0.0.1"
    assert bookie_conf("bookie-1", addresses, DATA, 1)["listeningInterface"].startswith("lo")
    assert broker_conf("broker-1", addresses, "plain")["bindAddress"] == "127.0.0.1"


def test_containers_know_each_other_by_name(addresses):
    """In a network all parts listen everywhere, ZooKeeper and bookies have names, brokers one more listener."""
    network = Layout(network=True, stores="172.20.0.1")
    assert zookeeper_conf(1, DATA, network)["clientPortAddress"] == "0.0.0.0"
    bookie = bookie_conf("bookie-2", addresses, DATA, 1, network)
    assert bookie["advertisedAddress"] == "bookie-2"
    assert bookie["metadataServiceUri"] == "metadata-store:zk:zookeeper:1"
    assert "listeningInterface" not in bookie
    broker = broker_conf("broker-1", addresses, "plain", layout=network)
    assert broker["metadataStoreUrl"] == "zk:172.20.0.1:8"
    assert broker["advertisedListeners"].endswith(",network:pulsar://broker-1:6650")
    assert broker["bindAddresses"] == "proxied:pulsar://0.0.0.0:6,network:pulsar://0.0.0.0:6650"
    two = addresses._replace(brokers={**addresses.brokers, "broker-2": BrokerPorts(14, 15, 16, 17, 18)})
    assert two.network_url == "pulsar://broker-1:6650,broker-2:6651"


def test_impossible_clusters_raise():
    """Too few parts, settings of the cluster and an unknown profile raise before anything starts."""
    for sizes in ({"brokers": 0}, {"bookies": 0}):
        with pytest.raises(InvalidUse, match="brokers and bookies must be >= 1"):
            PulsarCluster(**sizes)
    with pytest.raises(InvalidUse, match="the cluster sets clusterName, metadataStoreUrl"):
        PulsarCluster(settings={"metadataStoreUrl": "zk:elsewhere", "clusterName": "mine"})
    with pytest.raises(InvalidUse, match="choose one of"):
        PulsarCluster("nope")
