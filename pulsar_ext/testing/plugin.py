"""The pytest plugin: a real broker for tests, started only when a test uses it.

Every pytest run of a project that has pulsar_ext installed loads it, so it imports nothing of the harness until a
fixture is used. The docstring of each fixture describes its value; `pytest --fixtures` shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from .run import BROKER_LOGS, RUN, TICKET, Run, log_lines, variable_of

if TYPE_CHECKING:
    from collections.abc import Generator

pytest_plugins = ["pulsar_ext.testing.fixtures"]
_LOG_LINES = 400


class _WorkerController(Protocol):
    """xdist's, which has no types."""

    config: pytest.Config
    workerinput: dict[str, object]


_OPTIONS = {
    "backend": "back end of a broker: a container or a process; auto chooses a container if a Docker engine answers",
    "profile": "configuration of the broker, such as dedup or auth; plain by default",
    "version": "version of Pulsar to start, by default the one that the plugin is tested with",
    "through": "start each profile's broker as a standalone one, with mutual TLS, or as a cluster",
    "broker-log": "lines of the brokers' logs that a failed test shows: warnings and errors, all (default), or none",
    "url": "use the broker at this URL instead of starting one; with a token in PULSAR_TOKEN",
    "admin-url": "the admin REST API of that broker, by default port 8080 of the same host",
}
_CHOICES = {
    "backend": ("auto", "docker", "process"),
    "through": ("standalone", "mtls", "cluster"),
    "broker-log": BROKER_LOGS,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; each can also be set by an environment variable."""
    group = parser.getgroup("pulsar", "a real Pulsar broker for tests (pulsar_ext)")
    for name, about in _OPTIONS.items():
        option = "pulsar_version" if name == "version" else name.replace("-", "_")
        group.addoption(
            f"--pulsar-{name}",
            dest=f"pulsar_{option}",
            help=f"{about} (variable {variable_of(option)})",
            **({"choices": _CHOICES[name]} if name in _CHOICES else {}),
        )


def pytest_configure(config: pytest.Config) -> None:
    """Check the options before any test runs."""
    run = config.stash[RUN] = Run(config)
    if run.option("broker_log") not in (None, *BROKER_LOGS):
        raise pytest.UsageError(
            f"PULSAR_EXT_BROKER_LOG must be one of {', '.join(BROKER_LOGS)}, got {run.option('broker_log')!r}"
        )
    profile, version = run.option("profile"), run.option("pulsar_version")
    if profile is not None or version is not None:
        from pulsar_ext.errors import InvalidUse  # noqa: PLC0415  # loaded on use

        from .profiles import choose_version, get_profile  # noqa: PLC0415  # loaded on use

        try:
            get_profile(profile or "plain")
            choose_version(version)
        except InvalidUse as error:
            raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: _WorkerController) -> None:
    """Pass an xdist worker the address of the controller's brokers, which outlive the workers."""
    node.workerinput[TICKET] = node.config.stash[RUN].ticket()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the brokers of the run."""
    run = config.stash.get(RUN, None)
    if run is not None:
        run.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the chosen back end, the reason, and the brokers of the run."""
    run = config.stash[RUN]
    if run.lines:
        terminalreporter.section("pulsar")
        for line in run.lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Store the ends of the brokers' logs at the start of a test."""
    run = item.config.stash[RUN]
    if run.brokers and "pulsar_broker_factory" in getattr(item, "fixturenames", ()):
        run.log_starts = {key: broker.log_offset() for key, broker in run.brokers.items()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the brokers' logs during a failed test to its report."""
    report = yield
    run = item.config.stash[RUN]
    if report.failed and "pulsar_broker_factory" in getattr(item, "fixturenames", ()):
        level = run.option("broker_log") or "all"
        for key, broker in run.brokers.items() if level != "none" else ():
            lines = log_lines(broker.log_text(run.log_starts.get(key, 0)).splitlines(), level)
            if lines:
                omitted = [f"({len(lines) - _LOG_LINES} lines before these)"] if len(lines) > _LOG_LINES else []
                text = "\n".join([*omitted, *lines[-_LOG_LINES:]])
                report.sections.append((f"Pulsar broker log, profile {broker.profile.name}", text))
    return report
