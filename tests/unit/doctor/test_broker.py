"""The broker's settings that guarantees need."""

from __future__ import annotations

import pytest

from pulsar_ext.doctor.broker import missing_settings

DEFAULTS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerDeduplicationEnabled": "false",
    "delayedDeliveryEnabled": "true",
}


@pytest.mark.parametrize(
    ("settings", "is_deduplicated", "names"),
    [
        (DEFAULTS, None, ["brokerDeduplicationEnabled"]),
        (DEFAULTS, False, ["brokerDeduplicationEnabled"]),
        (DEFAULTS, True, []),
        (
            DEFAULTS | {"acknowledgmentAtBatchIndexLevelEnabled": "false"},
            True,
            ["acknowledgmentAtBatchIndexLevelEnabled"],
        ),
        (DEFAULTS | {"subscriptionKeySharedEnable": "false"}, True, ["subscriptionKeySharedEnable"]),
        ({}, None, []),
    ],
)
def test_settings_without_the_needed_value_are_reported(settings, is_deduplicated, names):
    """A setting is reported with its value and effect, unless a policy replaces it or the broker lacks it."""
    found = missing_settings(settings, is_deduplicated=is_deduplicated)
    assert [one.name for one in found] == names
    assert all(str(one).startswith(f"{one.name}={settings[one.name]}: ") for one in found)
