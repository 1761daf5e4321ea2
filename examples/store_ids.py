"""Store the ids of documents in a table, and read a document by its id.

    python examples/store_ids.py index pulsar://localhost:6650 documents ids.db
    python examples/store_ids.py show pulsar://localhost:6650 documents ids.db "report 7"

`index` reads a topic and stores, for each message, its property `name` and its id as bytes. Kill it at any point and
start it again: an id is stored before its message is acknowledged, so none is missing. `show` reads one message by its
stored id and prints its size, for chunked messages too.
"""

from __future__ import annotations

import sqlite3
import sys

import pulsar_ext as pulsar


def index(client: pulsar.Client, topic: str, database: sqlite3.Connection) -> None:
    """Store the id of every message, until none arrives for two seconds."""
    consumer = client.subscribe(topic, "index", initial_position=pulsar.InitialPosition.Earliest)
    while True:
        try:
            message = consumer.receive(2_000)
        except pulsar.Timeout:
            return
        with database:  # a transaction, committed at the end of the block
            row = message.properties()["name"], message.message_id().serialize()
            database.execute("INSERT OR REPLACE INTO ids VALUES (?, ?)", row)
        consumer.acknowledge(message)


def show(client: pulsar.Client, topic: str, database: sqlite3.Connection, name: str) -> None:
    """Read a message by its stored id."""
    [data] = database.execute("SELECT id FROM ids WHERE name = ?", (name,)).fetchone()
    message_id = pulsar.MessageId.deserialize(data)
    reader = client.create_reader(topic, message_id, start_message_id_inclusive=True)
    message = reader.read_next(10_000)
    print(f"{message.properties()['name']}: {len(message.data())} bytes, {message_id.to_text()}")


def main(command: str, service_url: str, topic: str, path: str, *name: str) -> None:
    """Run a command."""
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE IF NOT EXISTS ids(name TEXT PRIMARY KEY, id BLOB)")
    with pulsar.Client(service_url) as client:
        {"index": index, "show": show}[command](client, topic, database, *name)


if __name__ == "__main__":
    if len(sys.argv) < 5:  # noqa: PLR2004  # a command, the broker, a topic and a table
        sys.exit(__doc__)
    main(*sys.argv[1:])
