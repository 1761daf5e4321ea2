"""`pulsar-ext ack`: acknowledge messages by their ids, such as to cancel delayed ones."""

from __future__ import annotations

from dataclasses import asdict

from cyclopts import App

from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.text import counted

from .arguments import LOCAL, Flag, Json, Reach, read_id
from .output import print_result

app = App(name="ack", help="Acknowledge messages of a subscription by their ids.")


@app.default
def ack(
    topic: str, subscription: str, /, *forms: str, dry_run: Flag = False, as_json: Json = False, reach: Reach = LOCAL
) -> int:
    """Acknowledge messages of SUBSCRIPTION, whichever consumer has them, or none; all of them, or none after an error.

    Args:
        topic: The topic, such as persistent://public/default/orders, or a partitioned topic if the ids have partitions.
        subscription: Name of an existing subscription of the topic.
        forms: The ids, each as text such as 5:7:-1 or "5:5:-1;5:7:-1", or hexadecimal bytes such as 080510073000.
        dry_run: Only show the number of messages that would be acknowledged.
    """
    if not forms:
        raise InvalidUse("name at least one message id, such as 5:7:-1")
    message_ids = [read_id((form,)) for form in forms]
    with reach.connected() as (client, _):
        result = client.acknowledge(topic, subscription, message_ids, dry_run=dry_run)
    if as_json:
        print_result(asdict(result))
    else:
        done = "would acknowledge" if dry_run else "acknowledged"
        before = f"; acknowledged before: {result.already_acknowledged}" if result.already_acknowledged else ""
        print_result(f"{done} {counted(result.acknowledged, 'message')}{before}")
    return 0
