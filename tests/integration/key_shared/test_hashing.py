"""Key slots against the broker's own classes, through Java."""

from __future__ import annotations

import base64
import random

import pytest
from java_peer import run_java

from pulsar_ext.key_shared.hashing import key_slot, sticky_key

TEXTS = ["", "key1", "中文", "é", "😀", "k179888", "k27353", "k35981", "order-000001", " ", "\x00", "a" * 300, "AAAA"]


def java_line(*, ordering=None, key=None, is_base64=False, producer="p", sequence_id=0):
    """Return one line of input for KeySlots.java."""
    return " ".join(
        [
            "-" if ordering is None else "x" + ordering.hex(),
            "-" if key is None else "x" + key.encode().hex(),
            str(is_base64).lower(),
            "x" + producer.encode().hex(),
            str(sequence_id),
        ]
    )


@pytest.mark.core
def test_slots_equal_those_of_broker_classes():
    """The slots of 20,000 messages with every kind of key equal those of the broker's classes."""
    rng = random.Random(11)
    cases = [{"key": text} for text in TEXTS]
    for _ in range(4_000):
        raw = rng.randbytes(rng.randint(0, 24))
        text = "".join(
            chr(rng.choice([rng.randint(32, 126), rng.randint(0x80, 0x7FF), rng.randint(0x4E00, 0x9FFF)]))
            for _ in range(rng.randint(0, 12))
        )
        encoded = base64.b64encode(raw).decode()
        cases += [
            {"key": text},
            {"key": encoded, "is_base64": True},
            {"key": encoded},
            {"key": text, "ordering": raw},
            {"producer": text, "sequence_id": rng.randint(0, 2**40)},
        ]
    lines = run_java("KeySlots", lines=[java_line(**case) for case in cases])
    answers = [int(line) for line in lines if line.isdecimal()]
    ours = [
        key_slot(
            sticky_key(
                case.get("key"),
                ordering_key=case.get("ordering"),
                is_base64=case.get("is_base64", False),
                producer_name=case.get("producer", "p"),
                sequence_id=case.get("sequence_id", 0),
            )
        )
        for case in cases
    ]
    assert ours == answers
    # Keys that hash to 0 are in slot 1.
    assert answers[0] == answers[5] == answers[6] == 1
