"""A whole cluster under faults: nothing is lost, stored twice, or left unacknowledged.

    python tests/faults/cluster.py [--cycles N] [--minutes M] [--only move …] [--clients pulsar] [--record FILE]

Two brokers, two bookies and one ZooKeeper on one machine. For each client four deduplicating producers (unbatched,
batched, chunked, to four partitions) send numbers continuously, and sixteen subscriptions, of each type and for each
kind of message, receive and acknowledge, while once a cycle

`kill-broker`: one broker by turns is killed by SIGKILL and restarted; `kill-bookie`: one bookie by turns;
`move`: a bundle is moved to the other broker, by an unload with a destination;
`roll`: bookies and brokers are restarted one after the other, brokers drained before;
`store`: a broker loses ZooKeeper, for 2 s, or for longer than its session lasts, so that it exits, and is restarted;
`silent`: no data passes between clients and brokers in one direction, or in both, and then passes again, or is reset;
`half-open`: one end of every connection is reset, and the other detects it later.

Finally every producer's topic is read with the official client from the beginning, and the numbers are compared.
Starts a cluster for each fault, which needs Java. Exits with 1 if `pulsar_ext` lost, repeated or left messages.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acks_common import SETTINGS
from cluster_load import Load, prepare_namespace
from cluster_record import read, record
from cluster_report import report
from producer_topics import CLIENTS, prepare
from seeded import SeededParser

from pulsar_ext.testing import Profile, PulsarCluster, get_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import producer_topics
    from cluster_load import Consumed

__all__ = ["CYCLES", "PROFILE", "run"]

CYCLES: Final = {
    "kill-broker": 100,
    "kill-bookie": 50,
    "move": 50,
    "roll": 20,
    "store": 20,
    "silent": 1_000,
    "half-open": 1_000,
}
"""Number of faults of each kind in a full run."""
_NETWORK: Final = ("silent", "half-open")
_WAIT_EVERY: Final = 10
"""Cycles of network faults, which are short, between two waits for all messages."""
_SHORT_LOSS_SECONDS: Final = 2.0
_LONG_LOSS_SECONDS: Final = 12.0
PROFILE: Final = Profile(
    "cluster-faults",
    "small chunks, deduplication, acknowledgements inside batches",
    {
        **get_profile("small-chunks").settings,
        **{name: str(value).lower() for name, value in SETTINGS.items()},
        "brokerDeduplicationEnabled": "true",
        # A producer that reconnects waits until the broker has detected the half-open connection, at most this time.
        "connectionLivenessCheckTimeoutMillis": "500",
    },
)
"""Profile of the cluster for these faults."""
_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    # By default a broker whose session has expired may continue serving what another one has taken: two owners.
    "store": {"zookeeperSessionExpiredPolicy": "shutdown"}
}


def run(
    cluster: PulsarCluster,
    cycles: Mapping[str, int],
    clients: Sequence[str] = CLIENTS,
    say: Callable[[str], None] = lambda _: None,
    minutes: float = 1e6,
) -> Iterator[tuple[list[producer_topics.Outcome], list[Consumed]]]:
    """Inject each fault `cycles` times, at most for `minutes`, and yield its outcomes."""
    prepare()
    prepare_namespace(cluster)
    for fault, count in cycles.items():
        url = cluster.proxied_url if fault in _NETWORK else cluster.service_url
        with Load(cluster, fault, clients, url) as load:
            end = time.monotonic() + 60 * minutes
            for turn in range(count):
                began = time.monotonic()
                load.send()
                time.sleep(random.random() * 0.3)  # at a random time
                _FAULTS[fault](cluster, turn, load.topics)
                struck = time.monotonic()
                is_last = turn == count - 1 or struck > end
                if is_last or fault not in _NETWORK or turn % _WAIT_EVERY == _WAIT_EVERY - 1:
                    load.wait_until_acknowledged()
                now = time.monotonic()
                say(f"{fault} {turn + 1} of {count}: {struck - began:.1f} s, complete after {now - struck:.1f} s more")
                if is_last:
                    break
            yield list(load.produced()), list(load.consumed())


def _kill_broker(cluster: PulsarCluster, turn: int, _: Sequence[str]) -> None:
    _kill(cluster, cluster.brokers[turn % len(cluster.brokers)])


def _kill_bookie(cluster: PulsarCluster, turn: int, _: Sequence[str]) -> None:
    _kill(cluster, cluster.bookies[turn % len(cluster.bookies)])


def _kill(cluster: PulsarCluster, name: str) -> None:
    cluster.kill(name)
    time.sleep(random.random())
    cluster.restart(name)


def _move(cluster: PulsarCluster, _: int, topics: Sequence[str]) -> None:
    topic = random.choice(topics)
    owner = cluster.owner(topic)
    cluster.move(topic, next(name for name in cluster.brokers if name != owner))


def _roll(cluster: PulsarCluster, _: int, __: Sequence[str]) -> None:
    cluster.roll()


def _store(cluster: PulsarCluster, turn: int, _: Sequence[str]) -> None:
    name = cluster.brokers[turn % len(cluster.brokers)]
    cluster.cut_off(name)
    time.sleep(_LONG_LOSS_SECONDS if turn // len(cluster.brokers) % 2 else _SHORT_LOSS_SECONDS)
    cluster.rejoin(name)


def _silent(cluster: PulsarCluster, turn: int, _: Sequence[str]) -> None:
    direction = ("to_broker", "to_client", None)[turn % 3]
    for proxy in cluster.proxies.values():
        proxy.pause(direction)
    time.sleep(random.random() * 0.5)
    for proxy in cluster.proxies.values():
        if turn % 2:
            proxy.cut()
        proxy.resume(direction)
    time.sleep(random.random() * 0.3)


def _half_open(cluster: PulsarCluster, turn: int, _: Sequence[str]) -> None:
    for proxy in cluster.proxies.values():
        proxy.forget("client" if turn % 2 else "broker")
    time.sleep(random.random() * 0.5)
    for proxy in cluster.proxies.values():
        proxy.cut()
    time.sleep(random.random() * 0.3)


_FAULTS: Final = {
    "kill-broker": _kill_broker,
    "kill-bookie": _kill_bookie,
    "move": _move,
    "roll": _roll,
    "store": _store,
    "silent": _silent,
    "half-open": _half_open,
}


def main() -> int:
    """Run and print; return 1 if `pulsar_ext` broke a guarantee."""
    parser = SeededParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--cycles",
        type=int,
        help="of each fault; by default " + ", ".join(f"{name} {count:,}" for name, count in CYCLES.items()),
    )
    parser.add_argument("--only", nargs="+", choices=tuple(CYCLES), default=tuple(CYCLES), metavar="FAULT")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--minutes", type=float, default=1e6, help="the longest time for each fault's cycles")
    parser.add_argument("--record", type=Path, help="add the outcomes to this file, and print those of all its runs")
    parser.add_argument("--keep", type=Path, help="the directory for the logs of all parts, if a message was lost")
    arguments = parser.parse_args()

    def say(text: str) -> None:
        print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)

    produced: list[producer_topics.Outcome] = []
    consumed: list[Consumed] = []
    for fault in arguments.only:
        with PulsarCluster(PROFILE, settings=_SETTINGS.get(fault)) as cluster:
            say(cluster.describe())
            cycles = {fault: arguments.cycles or CYCLES[fault]}
            [(some_produced, some_consumed)] = run(cluster, cycles, arguments.clients, say, arguments.minutes)
            produced += some_produced
            consumed += some_consumed
            if arguments.record is not None:
                record(arguments.record, some_produced, some_consumed)
            if arguments.keep is not None and any(one.lost for one in some_produced):
                _keep_logs(cluster, arguments.keep)
    print(report(*(read(arguments.record) if arguments.record is not None else (produced, consumed))))
    return 0 if all(one.clean for one in (*produced, *consumed) if one.client == "pulsar_ext") else 1


def _keep_logs(cluster: PulsarCluster, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name in cluster.parts:
        (directory / f"{name}.log").write_text(cluster.log_text(name), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
