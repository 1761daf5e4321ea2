"""`pulsar-ext ids` reads and shows an id in every form."""

from __future__ import annotations

import pytest

from pulsar_ext.cli.arguments import read_id
from pulsar_ext.cli.ids import forms_of
from pulsar_ext.errors import InvalidMessageId
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId

PLAIN = MessageId(-1, 5, 7)
CHUNKED = ChunkMessageId(MessageId(-1, 5, 5), PLAIN)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (("5:7",), PLAIN),
        (("5:7:-1",), PLAIN),
        (("(5,7,-1,-1)",), PLAIN),
        (("080510073000",), PLAIN),
        (("08051007",), PLAIN),
        (("5", "7"), PLAIN),
        (("5", "7", "3"), MessageId(3, 5, 7)),
        (("5", "7", "-1", "2"), MessageId(-1, 5, 7, 2)),
        (("5:5:-1;5:7:-1",), CHUNKED),
        (("080510073a0408051005",), CHUNKED),
    ],
)
def test_every_form_is_read(form, expected):
    """Text, hexadecimal bytes of either client and bare numbers are read as the same id."""
    assert read_id(form) == expected


def test_chunked_id_shows_both_chunks():
    """The forms of a chunked message's id include its first chunk."""
    forms = forms_of(CHUNKED)
    assert (forms["text"], forms["first_chunk"], forms["bytes"]) == ("5:5:-1;5:7:-1", "5:5:-1", "080510073a0408051005")


@pytest.mark.parametrize("form", [(), ("xyz",), ("5",), ("a", "b"), ("1", "2", "3", "4", "5"), ("5:x",)])
def test_invalid_id_raises(form):
    """The error says that the value is not a message id."""
    with pytest.raises(InvalidMessageId, match="message id"):
        read_id(form)
