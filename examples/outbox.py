"""A durable outbox: publish the rows of a table, or the lines of a file, effectively once.

    python examples/outbox.py pulsar://localhost:6650 TOPIC --admin http://localhost:8080 --name NAME --table DB

Kill it at any point and start it again: every row ends up on the topic exactly once, and in order. The state is in two
places only: the outbox itself, which the application appends to, and the broker, which remembers the highest sequence
id of the producer's name. A row's sequence id is its key, or the line's number, so nothing has to be written back.

The table is `outbox(id INTEGER PRIMARY KEY, body TEXT)`; ids go up from 0 or more, and gaps are fine. With `--file F`
it publishes lines; a line counts once it has its end. With `--follow` it goes on with what is appended.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pulsar_ext as pulsar

if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = tuple[int, bytes]

ROWS_AT_ONCE = 1000


def rows_of_table(database: str, behind: int) -> Iterator[Row]:
    """Give the rows of the outbox with an id above `behind`, in order."""
    with sqlite3.connect(database) as connection:
        for number, body in connection.execute("SELECT id, body FROM outbox WHERE id > ? ORDER BY id", (behind,)):
            yield number, body.encode()


def lines_of_file(path: str, behind: int) -> Iterator[Row]:
    """Give the whole lines of a file, numbered from 0, with a number above `behind`."""
    with Path(path).open("rb") as file:
        for number, line in enumerate(file):
            if number > behind and line.endswith(b"\n"):
                yield number, line[:-1]


def publish(producer: pulsar.Producer, rows: Iterator[Row]) -> int:
    """Send rows, and give how many, once all of them are persisted."""
    count = 0
    while part := list(islice(rows, ROWS_AT_ONCE)):
        numbers, bodies = zip(*part, strict=True)
        producer.send_many(bodies, sequence_ids=numbers, flush=False)
        count += len(part)
    producer.flush()
    return count


def main() -> int:
    """Publish what is new."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("service_url")
    parser.add_argument("topic")
    parser.add_argument("--admin", required=True, help="the admin API, which tells whether the topic is deduplicated")
    parser.add_argument("--name", required=True, help="the producer's name: the same one after each restart")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--table", metavar="DB", help="a SQLite database with the table outbox")
    source.add_argument("--file", metavar="F")
    parser.add_argument("--follow", action="store_true", help="go on with what is appended")
    arguments = parser.parse_args()
    with pulsar.Client(arguments.service_url, admin=arguments.admin) as client:
        producer = client.create_producer(
            arguments.topic, producer_name=arguments.name, deduplication=True, batching_enabled=True
        )
        while True:
            behind = producer.last_sequence_id_published()
            if arguments.table:
                count = publish(producer, rows_of_table(arguments.table, behind))
            else:
                count = publish(producer, lines_of_file(arguments.file, behind))
            print(f"{count} rows published, the last one is {producer.last_sequence_id_published()}", flush=True)
            if not arguments.follow:
                return 0
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
