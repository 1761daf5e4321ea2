"""Durable outbox: publish the rows of a table, or the lines of a file, effectively once.

    python examples/outbox.py pulsar://localhost:6650 TOPIC --admin http://localhost:8080 --name NAME --table DB

Kill it at any point and start it again: every row is on the topic exactly once, and in order. The state is only in the
outbox, to which the application appends, and in the broker, which stores the highest sequence id of the producer name.
A row's sequence id is its key, or the line's number, so nothing has to be written back.

The table is `outbox(id INTEGER PRIMARY KEY, body TEXT)`; ids ascend from 0 or more, and may have gaps. With `--file F`
it publishes lines; a line counts once it has its newline. With `--follow` it continues with appended rows.
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

ROWS_PER_SEND = 1000


def rows_of_table(database: str, published: int) -> Iterator[Row]:
    """Yield the rows of the outbox with an id above `published`, in order."""
    with sqlite3.connect(database) as connection:
        for number, body in connection.execute("SELECT id, body FROM outbox WHERE id > ? ORDER BY id", (published,)):
            yield number, body.encode()


def lines_of_file(path: str, published: int) -> Iterator[Row]:
    """Yield the complete lines of a file, numbered from 0, with a number above `published`."""
    with Path(path).open("rb") as file:
        for number, line in enumerate(file):
            if number > published and line.endswith(b"\n"):
                yield number, line[:-1]


def publish(producer: pulsar.Producer, rows: Iterator[Row]) -> int:
    """Send rows, and return their number once all of them are persisted."""
    count = 0
    while part := list(islice(rows, ROWS_PER_SEND)):
        numbers, bodies = zip(*part, strict=True)
        producer.send_many(bodies, sequence_ids=numbers, flush=False)
        count += len(part)
    producer.flush()
    return count


def main() -> int:
    """Publish the new rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("service_url")
    parser.add_argument("topic")
    parser.add_argument("--admin", required=True, help="the admin API, to check that the topic is deduplicated")
    parser.add_argument("--name", required=True, help="the producer's name; keep it after restarts")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--table", metavar="DB", help="a SQLite database with the table outbox")
    source.add_argument("--file", metavar="F")
    parser.add_argument("--follow", action="store_true", help="continue with appended rows")
    arguments = parser.parse_args()
    with pulsar.Client(arguments.service_url, admin=arguments.admin) as client:
        producer = client.create_producer(
            arguments.topic, producer_name=arguments.name, deduplication=True, batching_enabled=True
        )
        while True:
            published = producer.last_sequence_id_published()
            if arguments.table:
                count = publish(producer, rows_of_table(arguments.table, published))
            else:
                count = publish(producer, lines_of_file(arguments.file, published))
            print(f"{count} rows published, the last one is {producer.last_sequence_id_published()}", flush=True)
            if not arguments.follow:
                return 0
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
