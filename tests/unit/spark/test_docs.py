"""Tables of the documentation, compared with the code."""

from pathlib import Path

from pulsar_ext.spark.options import ALL, OPTIONS, PASSED_ON, READ, SINK, STREAM, WRITE, camel_case
from pulsar_ext.spark.schema import COLUMNS, STANDARD, WRITTEN

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
USES = {READ: "read", STREAM: "readStream", WRITE: "write", SINK: "writeStream"}


def table(name):
    """The cells of the rows of a table, by their first cell."""
    _, _, text = PAGE.read_text(encoding="utf-8").partition(f"<!-- {name}: ")
    rows = [line.replace("\\|", "/").split("|") for line in text.split("\n\n")[0].splitlines() if line[0] == "|"][2:]
    return {cells[1].strip(" `"): [cell.strip() for cell in cells[2:-1]] for cells in rows}


def test_options_are_documented():
    """The table has each option in order, with its uses, its default, and words that it accepts."""
    documented = table("options")
    assert list(documented) == [*(option.name for option in OPTIONS), *(f"{prefix}*" for prefix in PASSED_ON)]
    for option in OPTIONS:
        uses, allowed, default, meaning = documented[option.name]
        assert uses == ("all" if option.where == ALL else ", ".join(map(USES.get, option.where))), option.name
        assert default == ("" if option.default is None else f"`{str(option.default).lower()}`"), option.name
        assert meaning, option.name
        for word in allowed.split(" / ") if "/" in allowed else ():
            assert str(option.parse(word)).lower() == word.lower(), option.name
    for prefix, parsers in PASSED_ON.items():
        names = ", ".join(f"`{camel_case(argument)}`" for argument in parsers)
        assert documented[f"{prefix}*"][-1] == f"Arguments of the client library: {names}."


def test_columns_are_documented():
    """The table has each column in order, with its types, and whether it is loaded and written."""
    documented = table("columns")
    assert list(documented) == list(COLUMNS)
    for name, column in COLUMNS.items():
        *found, meaning = documented[name]
        uses = ["yes" if name in names else "" for names in (STANDARD, WRITTEN)]
        assert found == [" or ".join(column.types), *uses], name
        assert meaning, name
