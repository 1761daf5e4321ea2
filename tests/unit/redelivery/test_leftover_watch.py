"""Which topics are looked at for chunks that nobody can receive."""

from __future__ import annotations

from types import SimpleNamespace

from pulsar_ext.redelivery.stranded import LeftoverWatch


def test_partitions_that_are_added_are_looked_at():
    """A consumer that has had chunked messages looks at the one partition, and the next time at both that there are."""
    partitions, looked_at = ["t-partition-0"], []

    def ask(question, answer):
        if question[0] == "partitions":
            return answer()
        looked_at.append(question[1])
        return {"s"}  # is at the end

    context = SimpleNamespace(
        opener=SimpleNamespace(get_topic_partitions=lambda _: list(partitions)), recent=SimpleNamespace(ask=ask)
    )
    acks = SimpleNamespace(collector=SimpleNamespace(has_chunks=True, may_have_chunks=True))
    watch = LeftoverWatch(context, None, "t", "s", acks)
    watch.tick(0.0)
    partitions.append("t-partition-1")
    watch.tick(0.0)
    assert looked_at == ["t-partition-0", "t-partition-0", "t-partition-1"]
