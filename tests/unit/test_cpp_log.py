"""A line of the C++ client becomes a record that says the same."""

from __future__ import annotations

import logging
import time

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._runtime.cpp_log import record_of

LINE = "2026-11-25 18:07:35.447 WARN  [140653692028608] ClientConnection:485 | [<none> -> x] 100 % failed"


def test_a_line():
    """Time, level, thread, place and text are fields of the record."""
    record = record_of(LINE, "pulsar")
    assert (record.name, record.levelno, record.getMessage()) == ("pulsar", logging.WARNING, LINE.split(" | ")[1])
    assert (record.module, record.lineno, record.thread) == ("ClientConnection", 485, 140653692028608)
    assert time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created)) == LINE[:19]
    assert round(record.msecs) == 447


@given(st.text())
def test_any_text(text):
    """What is no such line is a message as it is."""
    record = record_of(text, "pulsar")
    assert record.levelno in {logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR}
    assert record.getMessage() in text
