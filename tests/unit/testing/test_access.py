"""Who holds a way round to the brokers of a cluster."""

import pytest

from pulsar_ext.errors import BrokerStartError, InvalidUse
from pulsar_ext.testing import FaultProxy
from pulsar_ext.testing.access import Detour, Route, lease, way_to
from pulsar_ext.testing.ports import free_port


def test_each_detour_has_one_holder():
    """Each lease gives another one, none is left in the end, and what is given back can be had again."""
    first, second = [Detour(free_port(), ()) for _ in range(2)]
    detour, held = lease([first, second])
    other, held_too = lease([first, second])
    with held_too:
        assert (detour, other) == (first, second)
        with pytest.raises(BrokerStartError, match="all 2 detours"):
            lease([first, second])
        held.close()
        again, held = lease([first, second])
        held.close()
        assert again == first


def test_a_proxy_holds_its_detour_until_it_is_closed():
    """It listens for each broker, its URL names all of them, and the detour is free behind its close."""
    routes = tuple(Route(free_port(), "127.0.0.1", free_port()) for _ in range(2))
    detours = [Detour(free_port(), routes, "pulsar+ssl")]
    with FaultProxy.to("pulsar://one:1,other:2", detours) as proxy:
        assert proxy.service_url == f"pulsar+ssl://localhost:{routes[0].port},localhost:{routes[1].port}"
        with pytest.raises(BrokerStartError, match="all 1 detours"):
            FaultProxy.to("pulsar://one:1,other:2", detours)
    lease(detours)[1].close()


def test_several_brokers_need_a_detour():
    """A URL of one broker says where it is; one of several is refused, for look-ups would lead past the proxy."""
    assert way_to("pulsar+ssl://localhost:7") == ("pulsar+ssl", "localhost", 7)
    with pytest.raises(InvalidUse, match="lead past a proxy"):
        way_to("pulsar://localhost:7,localhost:8")
