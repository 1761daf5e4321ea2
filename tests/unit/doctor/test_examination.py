"""What a diagnosis and a look refuse before they ask anything."""

from __future__ import annotations

import pytest

from pulsar_ext.doctor.examination import examine
from pulsar_ext.errors import InvalidUse
from pulsar_ext.look.survey import survey


@pytest.mark.parametrize("ask", [examine, survey])
@pytest.mark.parametrize("options", [{"subscription": 5}, {"subscription": {}}, {"limits": 5}, {"limits": "all"}])
def test_an_argument_of_another_type_is_named(ask, options):
    """The argument and its value are named, and no admin API is asked."""
    [(name, value)] = options.items()
    with pytest.raises(InvalidUse, match=f"{name} must be .*not {value!r}"):
        ask(None, "public/default/orders", **options)
