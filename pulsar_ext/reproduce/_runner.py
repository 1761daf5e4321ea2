"""Bring up the brokers, carry each scenario out with both clients, and say what it means."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.errors import AdminError, BrokerStartError

from ._support import Apart, Counts, Env, Place, Scenario, count

if TYPE_CHECKING:
    from types import ModuleType

_CLIENTS = ("pulsar", "pulsar_ext")
_ANSWER_SECONDS = 10.0

Site = Callable[[str], AbstractContextManager[Place]]
"""Gives, for the name of a profile, the place where its scenarios run."""


class Verdict(Enum):
    """What the two clients' counts together mean."""

    FIXED_HERE = "fixed here"
    FIXED_UPSTREAM = "fixed upstream"
    BROKEN = "BROKEN"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"


def judge(official: Counts, ours: Counts) -> Verdict:
    """Compare the official client's counts with those of `pulsar_ext`."""
    if not ours.clean:
        return Verdict.BROKEN
    if official.failed:
        return Verdict.INCONCLUSIVE
    return Verdict.FIXED_UPSTREAM if official.clean else Verdict.FIXED_HERE


@dataclass(frozen=True, slots=True)
class Row:
    """What both clients did in one scenario."""

    scenario: Scenario
    broker_version: str
    official: Counts
    ours: Counts
    why_not: str = ""

    @property
    def verdict(self) -> Verdict:
        """What it means."""
        return Verdict.NOT_RUN if self.why_not else judge(self.official, self.ours)


def reproduce(
    scenarios: Iterable[Scenario], site: Site, started: Callable[[Scenario], None] = lambda _: None
) -> Iterator[Row]:
    """Carry the scenarios out one after the other, on one broker for each profile.

    Args:
        scenarios: in the order of the rows.
        site: `own_brokers()` or `existing_broker()`.
        started: called with each scenario before it runs.

    Raises:
        BrokerStartError: a broker could not be started, or does not answer.
    """
    for profile, group in groupby(scenarios, key=lambda scenario: scenario.profile):
        with site(profile) as place:
            for scenario in group:
                started(scenario)
                yield carry_out(scenario, place)


def carry_out(scenario: Scenario, place: Place) -> Row:
    """Run one scenario with both clients at the same time, each in a process and on topics of its own."""
    if place.why_not:
        not_run = Counts(note=place.why_not)
        return Row(scenario, place.broker_version, not_run, not_run, place.why_not)
    official, ours = count(scenario.run, place, _CLIENTS)
    return Row(scenario, place.broker_version, official, ours)


def own_brokers(backend: str | None = None, report: Callable[[str], None] = lambda _: None) -> Site:
    """Start a broker of the profile.

    Args:
        backend: what it runs in, as `start_broker` takes it.
        report: called with short lines: which back end was chosen, why, and what takes long.
    """

    @contextmanager
    def site(profile: str) -> Iterator[Place]:
        from pulsar_ext.testing import start_broker  # noqa: PLC0415  # an existing broker does not need it

        report(f"starting a broker, profile {profile}")
        with (
            start_broker(backend, profile, report=report) as broker,
            _namespace(Place(broker.service_url, broker.admin_url, "", token=broker.token)) as place,
        ):
            yield place

    return site


def existing_broker(service_url: str, admin_url: str, token: str | None = None) -> Site:
    """Use a broker that already runs; chunks are as large as its `maxMessageSize`, and fewer than in small ones.

    What the scenarios of a profile need is set for the namespace of the run; if that is not possible, they do not run.

    Args:
        service_url: where clients connect.
        admin_url: the admin REST API.
        token: a superuser's token, where the broker wants one.
    """

    @contextmanager
    def site(profile: str) -> Iterator[Place]:
        with _namespace(Place(service_url, admin_url, "", token=token)) as place:
            with Apart(_round_trip, _CLIENTS[0], place, seconds=_ANSWER_SECONDS, leader=True) as process:
                ended = process.outcome().ended
            if ended:
                problem = f"no message came back in {_ANSWER_SECONDS:.0f} s" if ended == "hung" else ended
                raise BrokerStartError(f"no broker answers at {service_url}: {problem}")
            yield replace(place, why_not=_prepare(place, profile))

    return site


def _prepare(place: Place, profile: str) -> str:
    """Set what the scenarios of a profile need, and return why they cannot run; empty if they can."""
    try:
        with PulsarAdmin(place.admin_url, token=place.token, max_attempts=1) as admin:
            if profile == "dedup":
                admin.set_deduplication(place.namespace, value=True)
            setting = "acknowledgmentAtBatchIndexLevelEnabled"
            if profile == "batch-index-acks" and admin.broker_configuration().get(setting) != "true":
                return f"cannot run on this broker: {setting} is off"
    except AdminError as error:
        return f"cannot run on this broker: {error.reason}"
    return ""


@contextmanager
def _namespace(place: Place) -> Iterator[Place]:
    """Make a namespace for the run, and remove it with all that is in it."""
    # Like start_broker, it is of the testing package, but needs no extra.
    from pulsar_ext.testing.access import Access  # noqa: PLC0415  # likewise
    from pulsar_ext.testing.tenancy import Tenancy  # noqa: PLC0415

    namespace = f"public/reproduce-{uuid.uuid4().hex[:12]}"
    with (
        PulsarAdmin(place.admin_url, token=place.token, max_attempts=1) as admin,
        Tenancy(place.admin_url, Access(token=place.token)) as tenancy,
    ):
        tenancy.create_namespace(namespace)
        try:
            yield replace(
                place,
                namespace=namespace,
                chunk_bytes=int(admin.broker_configuration()["maxMessageSize"]),
                broker_version=admin.broker_version(),
            )
        finally:
            tenancy.delete_namespace(namespace)


def _round_trip(_pulsar: ModuleType, env: Env) -> Any:
    return env.stored(env.topic())
