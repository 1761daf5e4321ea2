"""What the integration tests share: either client, a broker, a topic, programs, a Spark session."""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest
from awaited import AwaitedClient, awaited_admin
from programs import run_program
from reach import Reach

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.testing.backend import process_problem
from pulsar_ext.testing.profiles import THROUGH

_SHAPES = ("client_factory", "admin_class")
"""The fixtures that give either client's objects."""


@pytest.fixture
def broker(pulsar_broker_factory):
    """A broker where 100 KiB is the largest message."""
    return pulsar_broker_factory("small-chunks")


def pytest_configure(config):
    """Register the marks."""
    config.addinivalue_line("markers", "blocking_only(why): is about what only the blocking client has")
    config.addinivalue_line("markers", "core(each=(), awaited=False, slow=''): holds a public promise; `make test` runs it")
    config.addinivalue_line("markers", "on_demand: takes long, and PULSAR_EXT_TESTS=all runs it")
    config.addinivalue_line("markers", "twin_on_demand: takes long; PULSAR_EXT_TESTS=all runs it awaited as well")
    config.addinivalue_line("markers", "through: goes through mtls and a cluster in every run")
    config.addinivalue_line("markers", "standalone_only(why, ways=THROUGH[1:]): cannot go through these")


def pytest_generate_tests(metafunc):
    """Run the tests of a module that says `BOTH_CLIENTS = True` with the blocking and with the asyncio client.

    And, in a run that does not go through one thing as a whole, those that are marked for it through everything.
    """
    marked = any(mark.name == "through" for mark in metafunc.definition.iter_markers())
    if marked and _through(metafunc.config) is None:
        problem = process_problem()
        needs_java = pytest.mark.skipif(problem is not None, reason=f"no cluster here: {problem}")
        ways = [pytest.param(way, marks=[needs_java] if way == "cluster" else []) for way in THROUGH]
        metafunc.parametrize("pulsar_through", ways, indirect=True)
    both = getattr(metafunc.module, "BOTH_CLIENTS", False) and not any(
        mark.name == "blocking_only" for mark in metafunc.definition.iter_markers()
    )
    for name in _SHAPES:
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, ["blocking", "awaited"] if both else ["blocking"], indirect=True)


def pytest_collection_finish(session):
    """Refuse a run whose groups of tests would be left out: each worker would start a Spark and clusters of its own."""
    if session.config.getoption("loadgroup", default=False) and any(
        item.get_closest_marker("xdist_group") and "@" not in item.nodeid for item in session.items
    ):
        raise pytest.UsageError("pytest-xdist does not group tests with this version of pytest: see tox.ini for one")


def pytest_collection_modifyitems(config, items):
    """Leave out what a run of minutes has no time for, unless all is asked for by PULSAR_EXT_TESTS=all.

    Those marked `on_demand` are left out. Of a test with several parameters each value comes once with the blocking
    client, and not every combination. With the asyncio client each test runs with its first parameters, but
    `twin_on_demand`. What only a standalone can show is skipped elsewhere, with its reason.
    """
    for item in items:
        way = _params(item).get("pulsar_through") or _through(config) or "standalone"
        for mark in item.iter_markers("standalone_only"):
            if way in mark.kwargs.get("ways", THROUGH[1:]):
                item.add_marker(pytest.mark.skip(reason=f"standalone only: {mark.args[0]}"))
    if os.environ.get("PULSAR_EXT_TESTS") == "all":
        return
    tests = {}
    for item in items:
        if not item.get_closest_marker("on_demand"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for same in tests.values() for item in _enough_of(same)}
    if left_out := [item for item in items if item not in kept]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item in kept]


def _enough_of(same):
    """Give those of one test that have every value of its parameters between them, and the first awaited one."""
    blocking, awaited = [], []
    for item in same:
        is_awaited = "awaited" in map(_params(item).get, _SHAPES)
        (awaited if is_awaited else blocking).append(item)
    enough = [item for item in awaited[:1] if not item.get_closest_marker("twin_on_demand")]
    values = {item: _values(item) for item in blocking}
    missing, times = set().union(*values.values()), Counter()
    while missing:
        best = max(
            blocking, key=lambda item: (len(values[item] & missing), -sum(times[value] for value in values[item]))
        )
        enough.append(best)
        missing -= values[best]
        times.update(values[best])
    return enough


def _params(item):
    return item.callspec.params if getattr(item, "callspec", None) else {}


def _values(item):
    """Give what a test's parameters are; those that are given together are one."""
    params = _params(item)
    together = [[name.strip() for name in _names(mark)] for mark in item.iter_markers("parametrize")]
    alone = [[name] for name in params if not any(name in names for names in together)]
    return {(*names, *(id(params[name]) for name in names)) for names in together + alone} or {()}


def _names(mark):
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return names.split(",") if isinstance(names, str) else names


def _through(config):
    """What the whole run goes through, if it was asked for."""
    return config.getoption("pulsar_through") or os.environ.get("PULSAR_EXT_THROUGH") or None


@pytest.fixture
def client_factory(request, pulsar_client_factory, pulsar_async_client_factory):
    """Makes clients: blocking ones, or asyncio ones in their shape."""
    if request.param == "blocking":
        yield pulsar_client_factory
        return
    made = []

    def make(*args, **options):
        made.append(AwaitedClient(pulsar_async_client_factory(*args, **options)))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture(scope="module")
def admin_class(request):
    """`PulsarAdmin`, or `AsyncPulsarAdmin` in its shape."""
    return PulsarAdmin if request.param == "blocking" else awaited_admin


@pytest.fixture
def client(client_factory, broker):
    """A client of that broker."""
    return client_factory(broker)


@pytest.fixture
def program(request, client_factory, broker, topic, tmp_path):
    """Run a program against the broker in a process of its own; its status and its output are the result."""
    awaited = request.node.callspec.params["client_factory"] == "awaited"
    return lambda source: run_program(source, tmp_path, Reach.of(broker), topic, awaited=awaited)


@pytest.fixture
def run(pulsar_async_client_factory, broker):
    """Run a coroutine function with a client, which is closed afterwards; a task left over is a failure."""

    def run(function, **options):
        async def with_client():
            async with pulsar_async_client_factory(broker, **options) as client:
                result = await asyncio.wait_for(function(client), 60)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left
            return result

        return asyncio.run(with_client())

    return run


@pytest.fixture
def topic(pulsar_topic_factory, broker):
    """An unused topic."""
    return pulsar_topic_factory(broker=broker)


@pytest.fixture
def admin(client):
    """The client's own admin API."""
    return client.context.admin_api()


@pytest.fixture(scope="session")
def spark():
    """A worker's one Spark session: two cores of this machine, and no port that is open to others."""
    pytest.importorskip("pyspark")
    from pulsar_ext.spark import spark_session  # noqa: PLC0415  # not everybody has Spark

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = spark_session("tests", master="local[2]", config={"spark.log.level": "ERROR"})
    yield session
    session.stop()
