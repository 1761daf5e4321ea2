"""Jobs on topics, each a function here and a sub-command of `pulsar-ext spark`.

They take a Spark session that knows the source (`pulsar_ext.spark.spark_session`), and the options of a read.
"""

from __future__ import annotations

from pulsar_ext.spark.jobs.archive import ARCHIVED, Archived, archive
from pulsar_ext.spark.jobs.audit import Finding, TopicAudit, audit
from pulsar_ext.spark.jobs.plan_ranges import RangePlan, plan_ranges
from pulsar_ext.spark.jobs.progress import ProgressLines
from pulsar_ext.spark.jobs.replay import Replayed, replay, replay_topic

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
