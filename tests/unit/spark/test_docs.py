"""Tables of the documentation, compared with the code."""

from pathlib import Path

import pytest

from pulsar_ext.spark.options import option_table
from pulsar_ext.spark.schema import column_table

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


@pytest.mark.parametrize("table", [option_table, column_table])
def test_table_is_up_to_date(table):
    """The page contains the output of `option_table()` and `column_table()`."""
    assert table() in PAGE.read_text(encoding="utf-8")
