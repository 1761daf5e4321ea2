"""Shared fixtures of the integration tests: both clients, a broker, a topic, programs, a Spark session."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os

import pytest
import tiers
from awaited import AwaitedClient, awaited_admin
from programs import run_program
from reach import Reach
from timings import Timings

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.testing.backend import process_problem
from pulsar_ext.testing.plugin import TICKET
from pulsar_ext.testing.profiles import THROUGH, choose_version, newest_first


@pytest.fixture
def broker(pulsar_broker_factory):
    """Return a broker whose largest message is 100 KiB."""
    return pulsar_broker_factory("small-chunks")


@pytest.fixture
def deduplicating(pulsar_broker_factory, pulsar_namespace_factory):
    """Return that broker, which deduplicates the topics of this test's namespace."""
    broker = pulsar_broker_factory("small-chunks")
    with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
        admin.set_deduplication(pulsar_namespace_factory(broker), value=True)
    return broker


def pytest_addoption(parser):
    """Add the options that select tests; see tiers.py."""
    group = parser.getgroup("tiers", "which tests of tests/integration run")
    group.addoption("--tier", choices=tiers.TIERS, default="all", help="core, rest, both (all), or every combination")
    group.addoption("--part", type=_part, metavar="K/N", help="the K-th of N parts of equal length")


def _part(text):
    try:
        return tiers.parse_part(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pytest_configure(config):
    """Time the fixtures."""
    config.pluginmanager.register(Timings())


@pytest.hookimpl(optionalhook=True, trylast=True)
def pytest_configure_node(node):
    """Let xdist's workers use the brokers of `tests/suite.py`, which outlive this run, if it was started there."""
    if brokers := os.environ.get("SUITE_BROKERS"):
        node.workerinput[TICKET] = json.loads(brokers)


def pytest_generate_tests(metafunc):
    """Run the tests of a module with `BOTH_CLIENTS = True` with the blocking and with the asyncio client.

    Unless the whole run goes through one kind of broker, run marked tests through all kinds.
    """
    marked = any(mark.name == "through" for mark in metafunc.definition.iter_markers())
    if marked and _through(metafunc.config) is None:
        problem = _no_process()
        needs_java = pytest.mark.skipif(problem is not None, reason=f"no cluster here: {problem}")
        ways = [pytest.param(way, marks=[needs_java] if way == "cluster" else []) for way in THROUGH]
        metafunc.parametrize("pulsar_through", ways, indirect=True)
    both = getattr(metafunc.module, "BOTH_CLIENTS", False) and not any(
        mark.name == "blocking_only" for mark in metafunc.definition.iter_markers()
    )
    for name in tiers.CLIENTS:
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, ["blocking", "awaited"] if both else ["blocking"], indirect=True)


_no_process = functools.cache(process_problem)


def pytest_ignore_collect(collection_path, config):
    """Ignore modules without a test of the core tier, if only that runs."""
    is_module = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return (is_module and config.option.tier == "core" and "mark.core" not in collection_path.read_text()) or None


def pytest_collection_finish(session):
    """Raise if xdist does not group tests: each worker would then start Spark and clusters."""
    if session.config.getoption("loadgroup", default=False) and any(
        item.get_closest_marker("xdist_group") and "@" not in item.nodeid for item in session.items
    ):
        raise pytest.UsageError("pytest-xdist does not group tests with this version of pytest: see tox.ini for one")


def pytest_collection_modifyitems(config, items):
    """Keep the tests of the tier and the part; skip those that need another broker, with the reason."""
    version = choose_version(config.getoption("pulsar_pulsar_version"))
    for item in items:
        way = tiers.params(item).get("pulsar_through") or _through(config) or "standalone"
        if way != "standalone":
            item.user_properties.append(("through", way))
        for mark in item.iter_markers("standalone_only"):
            if way in mark.kwargs.get("ways", THROUGH[1:]):
                item.add_marker(pytest.mark.skip(reason=f"not here: {mark.args[0]}"))
        for mark in item.iter_markers("from_pulsar"):
            first, why = mark.args
            if newest_first([version, first])[0] != version:
                item.add_marker(pytest.mark.skip(reason=f"not here: needs Pulsar {first}: {why}"))
    kept = tiers.order(tiers.select(items, config.option.tier))
    if config.option.part:
        kept = tiers.take_part(kept, *config.option.part, tiers.read_durations())
    if deselected := set(items).difference(kept):
        config.hook.pytest_deselected(items=[*deselected])
    items[:] = kept


def _through(config):
    """Return the kind of broker of the whole run, or None."""
    return config.getoption("pulsar_through") or os.environ.get("PULSAR_EXT_THROUGH") or None


@pytest.fixture
def client_factory(request, pulsar_client_factory, pulsar_async_client_factory):
    """Return a factory of blocking clients, or of asyncio clients with their interface."""
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
    """Return `PulsarAdmin`, or `AsyncPulsarAdmin` with its interface."""
    return PulsarAdmin if request.param == "blocking" else awaited_admin


@pytest.fixture
def client(client_factory, broker):
    """Return a client of that broker."""
    return client_factory(broker)


@pytest.fixture
def program(request, client_factory, broker, topic, tmp_path):
    """Return a function that runs a program against the broker in a separate process, and returns status and output."""
    awaited = request.node.callspec.params["client_factory"] == "awaited"
    return lambda source: run_program(source, tmp_path, Reach.of(broker), topic, awaited=awaited)


@pytest.fixture
def run(pulsar_async_client_factory, broker):
    """Return a function that runs a coroutine function with a client; a task that remains is a failure."""

    def run(function, **options):
        async def with_client():
            async with pulsar_async_client_factory(broker, **options) as client:
                result = await asyncio.wait_for(function(client), 60)
            remaining = asyncio.all_tasks() - {asyncio.current_task()}
            assert not remaining
            return result

        return asyncio.run(with_client())

    return run


@pytest.fixture
def topic(pulsar_topic_factory, broker):
    """Return an unused topic name."""
    return pulsar_topic_factory(broker=broker)


@pytest.fixture
def admin(client):
    """Return the client's admin API."""
    return client.context.admin_api()


@pytest.fixture(scope="session")
def spark():
    """Return a worker's only Spark session, with two cores and no open port."""
    pytest.importorskip("pyspark")
    from pulsar_ext.spark import spark_session  # noqa: PLC0415  # needs Spark

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = spark_session("tests", master="local[2]", config={"spark.log.level": "ERROR"})
    yield session
    session.stop()
