"""The Spark program that `spark.py` kills: it reads orders as lines of JSON on standard input, and answers."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pulsar_ext.spark import spark_session


def start(spark: Any, order: dict[str, Any]) -> Any:
    """Start the query: from a topic to Parquet, or from Parquet to a topic."""
    if order["direction"] == "read":
        frame = spark.readStream.format("pulsar").options(**order["options"]).load().select("value", "__messageId")
        sink = frame.writeStream.format("parquet").option("path", order["path"])
    else:
        Path(order["path"]).mkdir(parents=True, exist_ok=True)
        files = spark.readStream.schema("value string, __key string").option("maxFilesPerTrigger", order["files"])
        sink = files.parquet(order["path"]).writeStream.format("pulsar").options(**order["options"])
    if order.get("slow"):
        sink = frame.writeStream.foreachBatch(lambda _frame, _batch: time.sleep(60))
    return sink.option("checkpointLocation", order["checkpoint"]).start()


def obey(spark: Any, query: Any, order: dict[str, Any]) -> tuple[Any, Any]:
    """Carry out an order; return the current query, and the answer."""
    answer: Any = {}
    if order["do"] == "start":
        query = start(spark, order)
    elif order["do"] == "stop" and query is not None:
        query.stop()
    elif order["do"] == "status" and query is not None:
        error = query.exception()
        rows = sum(report.numInputRows for report in query.recentProgress)
        answer = {"active": query.isActive, "error": None if error is None else str(error), "rows": rows}
    elif order["do"] == "copies":
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        answer = any(one.numActiveTasks + one.numCompletedTasks > one.numTasks for one in stages if one)
    elif order["do"] == "numbers":
        # Before the first batch is committed, Spark has nothing to read.
        archived = any((Path(order["path"]) / "_spark_metadata").glob("[0-9]*"))
        rows = spark.read.parquet(order["path"]).selectExpr("trim(string(value)) n").collect() if archived else []
        answer = [int(row.n) for row in rows]
    elif order["do"] == "feed":
        first, count = order["first"], order["count"]
        numbers = spark.range(first, first + count, 1, order["files"])
        numbers.selectExpr("string(id) value", "if(id % 3 = 0, concat('k', id % 31), null) __key").write.mode(
            "append"
        ).parquet(order["path"])
    return query, answer


def main() -> None:
    """Carry out orders until the input ends."""
    config = {"spark.log.level": "OFF", "spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    session = {"master": "local[2,8]", "config": {}, **json.loads(sys.argv[1])}
    spark = spark_session("faults", master=session["master"], config=config | session["config"])
    query = None
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        answer: Any = {}
        try:
            query, answer = obey(spark, query, order)
        except Exception as error:  # noqa: BLE001  # the answer has it, and the next order may succeed
            traceback.print_exc()
            answer = {"failed": repr(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
