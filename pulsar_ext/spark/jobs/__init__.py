"""Jobs on topics: each is a function here and a sub-command of `pulsar-ext spark`.

They take the data source's options and a Spark session that has it (`pulsar_ext.spark.spark_session`).
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
