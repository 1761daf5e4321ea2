"""Jobs on topics, each of them a function here and a sub-command of `pulsar-ext spark`.

They take a Spark session with the data source (`pulsar_ext.spark.spark_session`), and its options.
"""

from __future__ import annotations

from pulsar_ext.errors import MissingExtra

with MissingExtra.named("spark", "pulsar_ext.spark.jobs"):
    from .archive import ARCHIVED, Archived, Replayed, archive, replay, replay_topic
    from .audit import Finding, TopicAudit, audit
    from .plan_ranges import ProgressLines, RangePlan, plan_ranges

__all__ = [
    "ARCHIVED",
    "Archived",
    "Finding",
    "ProgressLines",
    "RangePlan",
    "Replayed",
    "TopicAudit",
    "archive",
    "audit",
    "plan_ranges",
    "replay",
    "replay_topic",
]
