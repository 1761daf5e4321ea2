"""Profile for tests that need indexes: of entries, across small ledgers, or of acknowledged messages in batches."""

from pulsar_ext.testing import Profile
from pulsar_ext.testing.profiles import get_profile

INDEXES = Profile(
    "indexes",
    "small chunks, ten entries per ledger, entries with index and timestamp, acknowledgements inside batches",
    {
        "maxMessageSize": "102400",
        "managedLedgerMaxEntriesPerLedger": "10",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        **get_profile("entry-index").settings,
        **get_profile("batch-index-acks").settings,
    },
)
