"""A C++ log line becomes a log record."""

from __future__ import annotations

import logging
import time

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._runtime.cpp_log import record_of

LINE = "2026-11-25 18:07:35.447 WARN  [140653692028608] ClientConnection:485 | [<none> -> x] 100 % failed"


def test_log_line_becomes_a_record():
    """Time, level, thread, source and text are fields of the record."""
    record = record_of(LINE, "pulsar")
    assert (record.name, record.levelno, record.getMessage()) == ("pulsar", logging.WARNING, LINE.split(" | ")[1])
    assert (record.module, record.lineno, record.thread) == ("ClientConnection", 485, 140653692028608)
    assert time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created)) == LINE[:19]
    assert round(record.msecs) == 447


@given(st.text())
def test_other_text_becomes_a_message(text):
    """Any other text becomes the message of a record."""
    record = record_of(text, "pulsar")
    assert record.levelno in {logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR}
    assert record.getMessage() in text
