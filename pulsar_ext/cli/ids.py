"""`pulsar-ext ids`: every form of a message id, and its entry on the broker."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from pulsar_ext.ids.message_id import ChunkMessageId, MessageId

from .arguments import LOCAL, Json, Reach, read_id
from .output import print_result

app = App(name="ids", help="Show every form of a message id, and its entry on the broker.")

_SHOWN = (
    *("producer_name", "sequence_id", "publish_time", "partition_key", "properties", "num_messages_in_batch"),
    *("uuid", "chunk_id", "num_chunks", "total_chunk_size", "index"),
)


@app.default
def ids(
    *form: Annotated[str, Parameter(allow_leading_hyphen=True)],
    topic: str | None = None,
    reach: Reach = LOCAL,
    as_json: Json = False,
) -> None:
    """Show every form of a message id; with --topic, also the broker's message.

    Args:
        form: The id in any form: text such as 5:7:-1 or "5:5:-1;5:7:-1", hexadecimal bytes such as 080510073000, or
            the numbers LEDGER ENTRY [PARTITION [BATCH_INDEX]].
        topic: The topic that the id belongs to. Without it no request is sent.
    """
    message_id = read_id(form)
    facts = forms_of(message_id)
    if topic is not None:
        with reach.connected() as (client, admin):
            facts["message"] = client.resolve_message_id(topic, message_id).to_text()
            entry = asdict(admin.entry(topic, message_id.ledger_id(), message_id.entry_id()))
        facts |= {name: entry[name] for name in _SHOWN if entry[name] not in (None, {}, "")}
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        table.add_row(Text(name.replace("_", " "), style="dim"), Text(str(value)))
    print_result(facts if as_json else table)


def forms_of(message_id: MessageId | ChunkMessageId) -> dict[str, object]:
    """Return every form of an id (pure)."""
    facts: dict[str, object] = {
        "text": message_id.to_text(),
        "official_text": str(message_id),
        "bytes": message_id.serialize().hex(),
        "ledger": message_id.ledger_id(),
        "entry": message_id.entry_id(),
        "partition": message_id.partition(),
        "batch_index": message_id.batch_index(),
    }
    if isinstance(message_id, ChunkMessageId):
        facts["first_chunk"] = message_id.first_chunk_message_id().to_text()
        facts["last_chunk"] = message_id.last_chunk_message_id().to_text()
    return facts
