"""Count words in a stream of messages, with Spark: a minimal streaming job.

    pulsar-ext broker run --port 6650 --admin-port 8080     # in one terminal
    python examples/word_count.py --topic words             # in another
    python examples/word_count.py --topic words --send "to be or not to be"

Needs `pip install 'pulsar-ext[spark,testing,cli]'` and Java 17. On a cluster, pass `--master`, or run it by
`spark-submit`; docs/spark.md describes how workers get the library.
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions

import pulsar_ext as pulsar
from pulsar_ext.spark import spark_session
from pulsar_ext.spark.jobs import ProgressLines


def main() -> None:
    """Send a line, or count words until Ctrl-C."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="pulsar://localhost:6650")
    parser.add_argument("--admin-url", default="http://localhost:8080")
    parser.add_argument("--topic", default="words")
    parser.add_argument("--checkpoint", default="word-count-checkpoint", help="directory for the job's progress")
    parser.add_argument("--master", help="Spark's master; by default this machine")
    parser.add_argument("--send", metavar="TEXT", help="send a line of words instead of counting")
    parser.add_argument("--once", action="store_true", help="count the existing messages and end")
    arguments = parser.parse_args()
    if arguments.send is not None:
        with pulsar.Client(arguments.url) as client, client.create_producer(arguments.topic) as producer:
            producer.send(arguments.send.encode())
        return

    spark = spark_session("word-count", master=arguments.master, config={"spark.log.level": "ERROR"})
    spark.streams.addListener(ProgressLines(print))
    lines = (
        spark.readStream.format("pulsar")
        .option("service.url", arguments.url)
        .option("admin.url", arguments.admin_url)
        .option("topic", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("waitingForNonExistedTopic", "true")
        .option("valueFormat", "string")
        .load()
    )
    words = lines.select(functions.explode(functions.split(functions.lower("value"), r"\W+")).alias("word"))
    counts = words.where("word <> ''").groupBy("word").count()
    query = (
        counts.orderBy(functions.desc("count"))
        .writeStream.outputMode("complete")
        .format("console")
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(**({"availableNow": True} if arguments.once else {"processingTime": "2 seconds"}))
        .start()
    )
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
