"""`pulsar-ext copy`: the messages of a topic to another topic, of this cluster or another one."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated

from cyclopts import App, Parameter

from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.transfer import Transfer

from .arguments import LOCAL, Json, Reach
from .redrive import DryRun, Properties, Where, carry_out, chosen

app = App(name="copy", help="Copy the messages of a topic to another topic, each once.")


@app.default
def copy(
    source: str,
    target: str,
    /,
    *,
    subscription: str | None = None,
    where: Where = None,
    property_: Properties = None,
    dry_run: DryRun = False,
    to_url: str | None = None,
    to_admin_url: str | None = None,
    to_token: Annotated[str | None, Parameter(env_var="PULSAR_EXT_TO_TOKEN", show=False)] = None,
    reach: Reach = LOCAL,
    as_json: Json = False,
) -> None:
    """Copy the messages of SOURCE to TARGET, which exists, with keys, properties, event times and schema versions.

    It ends with the messages that are stored when it begins. Its subscription of SOURCE remains: the same command
    continues after an interruption, and later copies what has been stored since.

    Args:
        source: The topic to copy, partitioned or not.
        target: The topic that gets the copies. If it has as many partitions, each partition gets those of one.
        subscription: Subscription of SOURCE that has the messages to copy; it is created with all stored messages. By
            default it has a name of its own for each target.
        to_url: URL of the target's broker, if it is in another cluster.
        to_admin_url: URL of that cluster's admin REST API. The default is port 8080 on the broker's host.
        to_token: The token for that cluster; by default that of the source. Set it in PULSAR_EXT_TO_TOKEN.
    """
    wanted = chosen(where, property_)
    with ExitStack() as stack:
        client, admin = stack.enter_context(reach.connected())
        other, cluster, place = client, "", str(TopicName.parse(target))
        if to_url is not None or to_admin_url is not None:
            there = replace(reach, url=to_url, admin_url=to_admin_url, token=to_token or reach.token)
            other, other_admin = stack.enter_context(there.connected())
            cluster = admin.broker_configuration()["clusterName"]
            place = f"{other_admin.broker_configuration()['clusterName']}|{place}"
        name = f"copy-{TopicName.parse(target).name}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
        transfer = Transfer(
            client,
            other,
            source,
            subscription or name,
            target,
            is_letter=False,
            wanted=wanted,
            keeps_excluded=False,
            cluster=cluster,
        )
        carry_out(transfer, dry_run=dry_run, as_json=as_json)
