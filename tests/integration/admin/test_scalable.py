"""Scalable topics of Pulsar 5, which are only listed."""

from __future__ import annotations

import urllib.request

import pytest

import pulsar_ext as pulsar
from pulsar_ext.doctor.examination import examine


def put(broker, path):
    """Send an administrative request that this library does not offer."""
    with urllib.request.urlopen(urllib.request.Request(f"{broker.admin_url}/admin/v2/{path}", method="PUT")):
        pass


@pytest.mark.standalone_only("sends its own requests, without credentials")
@pytest.mark.from_pulsar("5.0.1", "has scalable topics")
def test_scalable_topics_are_listed_with_their_backlogs(admin, broker, namespace):
    """The admin API and the doctor show the segments and backlogs of scalable topics."""
    put(broker, f"scalable/{namespace}/orders?numInitialSegments=3")
    put(broker, f"scalable/{namespace}/orders/subscriptions/s?type=STREAM")
    topic = f"topic://{namespace}/orders"
    assert admin.scalable_topics(namespace) == (topic,)
    stats = admin.scalable_stats(topic)
    assert [*stats.segments.values()] == ["ACTIVE"] * 3
    assert all(one.startswith(f"segment://{namespace}/orders/") for one in stats.segments)
    assert stats.backlog_messages == {"s": 0}
    diagnosis = examine(admin, namespace)
    assert [one for one in diagnosis.notes if topic in one and "3 active segments" in one and "s 0" in one]


@pytest.mark.core
def test_other_names_have_no_scalable_statistics(admin, namespace):
    """A namespace without scalable topics lists none, on any version; names of other kinds raise."""
    assert admin.scalable_topics(namespace) == ()
    with pytest.raises(pulsar.AdminError):
        admin.scalable_stats(f"topic://{namespace}/missing")
    for name in ("orders", f"persistent://{namespace}/orders"):
        with pytest.raises(pulsar.InvalidTopic, match="not the name of a scalable topic"):
            admin.scalable_stats(name)
