"""The texts of all errors and log lines of the package: their length, their values, and no secrets."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pulsar_ext

_ROOT = Path(pulsar_ext.__file__).parent
_LONGEST = 300
_VALUE = 10
"""Characters that a value in a text counts for."""
_LOGS = {"debug", "info", "warning", "error", "exception"}
_ABOUT_A_VALUE = re.compile(r"\b(must be|must not be|must have|is not an?|invalid)\b")
_WITHOUT_VALUE = {
    "The admin URL must have the form http://host:8080",  # it may hold a password
    "The token has characters that are invalid in an HTTP header; pass a valid token",
    "must be None or a dict",  # properties may hold anything
    "The schema of the values is not an Avro record",  # the schema is as long as a page
    "it is not a JSON object",  # the caller adds the value
    "is unsupported",
    "must not be set",  # both options are named
    "must not be empty",  # there is no value
    "must be a finite number",  # of many weights
}
_SECRET = re.compile(r"password|secret|private_key_data|(?<!_)token(?!\w*(_name|_url|_file|_path))", re.IGNORECASE)


def _text(node):
    """Return a literal text and its interpolated expressions; None for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, []
    if isinstance(node, ast.JoinedStr):
        values = [each.value for each in node.values if isinstance(each, ast.FormattedValue)]
        return "".join(
            each.value if isinstance(each, ast.Constant) else "{}".ljust(_VALUE) for each in node.values
        ), values
    return None


@functools.cache
def _texts():
    """Return all texts: True for an error's, the text, and its values."""
    return list(_read_texts())


def _read_texts():
    for path in sorted(_ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_error = isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
            call = node.exc if is_error else node
            is_log = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _LOGS
            if (is_error or is_log) and call.args and (found := _text(call.args[0])) is not None:
                text, values = found
                yield is_error, text, [*values, *call.args[1:]]


def test_error_texts_are_short_and_have_their_value():
    """Every text has at most 300 characters, and an error about a value contains it."""
    assert len(_texts()) > 500
    for is_error, text, values in _texts():
        assert len(text) <= _LONGEST, text
        about = is_error and _ABOUT_A_VALUE.search(text) and not any(part in text for part in _WITHOUT_VALUE)
        assert values or not about or " got " in text, text


def test_error_texts_have_no_secrets():
    """Errors and log lines never show a password, a token or a private key."""
    for _, text, values in _texts():
        for value in values:
            assert not _SECRET.search(ast.unparse(value)), (text, ast.unparse(value))
