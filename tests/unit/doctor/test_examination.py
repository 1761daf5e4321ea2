"""Arguments that a diagnosis and a survey reject before they send a request."""

from __future__ import annotations

import pytest

from pulsar_ext.doctor.examination import examine
from pulsar_ext.errors import InvalidUse
from pulsar_ext.look.survey import survey


@pytest.mark.parametrize("ask", [examine, survey])
@pytest.mark.parametrize("options", [{"subscription": 5}, {"subscription": {}}, {"limits": 5}, {"limits": "all"}])
def test_wrong_argument_type_raises_invalid_use(ask, options):
    """The error names the argument and its value, and no request is sent."""
    [(name, value)] = options.items()
    with pytest.raises(InvalidUse, match=f"{name} must be .*got {value!r}"):
        ask(None, "public/default/orders", **options)
