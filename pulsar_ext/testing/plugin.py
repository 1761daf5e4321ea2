"""The pytest plugin: a real broker for tests, started only when a test asks for one.

It is loaded in every pytest run of a project that has pulsar_ext installed, so it brings in nothing of the harness
until a fixture is used. Each fixture says by its docstring what it gives; `pytest --fixtures` shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .fixtures import *  # noqa: F403  # pytest finds fixtures by their names in the plugin's module
from .run import BROKER_LOGS, RUN, TICKET, Run, shown_of

if TYPE_CHECKING:
    from collections.abc import Generator

_LOG_LINES = 400


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; each has a variable of the environment behind it."""
    group = parser.getgroup("pulsar", "a real Pulsar broker for tests (pulsar_ext)")
    group.addoption(
        "--pulsar-backend",
        dest="pulsar_backend",
        choices=("auto", "docker", "process"),
        help="what a broker runs in: a container or a process; auto takes a container if a Docker engine answers "
        "(variable PULSAR_EXT_BACKEND)",
    )
    group.addoption(
        "--pulsar-profile",
        dest="pulsar_profile",
        help="how the broker is set up, such as dedup or auth; plain by default (variable PULSAR_EXT_PROFILE)",
    )
    group.addoption(
        "--pulsar-version",
        dest="pulsar_pulsar_version",
        help="which version of Pulsar to start, by default the one that the plugin is tested with "
        "(variable PULSAR_EXT_PULSAR_VERSION)",
    )
    group.addoption(
        "--pulsar-through",
        dest="pulsar_through",
        choices=("standalone", "mtls", "cluster"),
        help="start each profile's broker as a standalone one, behind mutual TLS, or as a cluster "
        "(variable PULSAR_EXT_THROUGH)",
    )
    group.addoption(
        "--pulsar-broker-log",
        dest="pulsar_broker_log",
        choices=BROKER_LOGS,
        help="what a failed test shows of the brokers' logs: warnings and errors, all, or none; all by default "
        "(variable PULSAR_EXT_BROKER_LOG)",
    )
    group.addoption(
        "--pulsar-url",
        dest="pulsar_url",
        help="use the broker at this URL instead of starting one (variable PULSAR_URL; its token is in PULSAR_TOKEN)",
    )
    group.addoption(
        "--pulsar-admin-url",
        dest="pulsar_admin_url",
        help="the admin REST API of that broker, by default port 8080 of the same host (variable PULSAR_ADMIN_URL)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check what can be checked before any test runs."""
    run = config.stash[RUN] = Run(config)
    if run.option("broker_log") not in (None, *BROKER_LOGS):
        raise pytest.UsageError(f"PULSAR_EXT_BROKER_LOG is none of {', '.join(BROKER_LOGS)}")
    profile, version = run.option("profile"), run.option("pulsar_version")
    if profile is not None or version is not None:
        from pulsar_ext.errors import InvalidUse  # noqa: PLC0415  # only for those who use it

        from .profiles import choose_version, get_profile  # noqa: PLC0415  # likewise

        try:
            get_profile(profile or "plain")
            choose_version(version)
        except InvalidUse as error:
            raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give an xdist worker the address that gives brokers: they are the controller's, which outlives the workers."""
    node.workerinput[TICKET] = node.config.stash[RUN].ticket()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the brokers of the run."""
    run = config.stash.get(RUN, None)
    if run is not None:
        run.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which back end was taken, why, and what ran where."""
    run = config.stash[RUN]
    if run.lines:
        terminalreporter.section("pulsar")
        for line in run.lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember where the brokers' logs are when a test starts."""
    run = item.config.stash[RUN]
    if run.brokers and "pulsar_broker_factory" in getattr(item, "fixturenames", ()):
        run.log_starts = {key: broker.log_offset() for key, broker in run.brokers.items()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach what the brokers logged during a test to its report if it failed."""
    report = yield
    run = item.config.stash[RUN]
    if report.failed and "pulsar_broker_factory" in getattr(item, "fixturenames", ()):
        wanted = run.option("broker_log") or "all"
        for key, broker in run.brokers.items() if wanted != "none" else ():
            lines = shown_of(broker.log_text(run.log_starts.get(key, 0)).splitlines(), wanted)
            if lines:
                left_out = [f"({len(lines) - _LOG_LINES} lines before these)"] if len(lines) > _LOG_LINES else []
                text = "\n".join([*left_out, *lines[-_LOG_LINES:]])
                report.sections.append((f"Pulsar broker log, profile {broker.profile.name}", text))
    return report
