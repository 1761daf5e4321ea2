"""Time constants of acknowledgements, each with its reason; in seconds, unless a name says otherwise."""

from __future__ import annotations

from typing import Final

# -- the connection ----------------------------------------------------------------------------------------------------

UNNOTICED_SECONDS: Final = 0.085
"""Shortest time of a disconnection with a reconnection: polls, or a request, that take longer may have missed one."""
IDLE_POLL_SECONDS: Final = 1.0
"""Longest poll interval while few messages are acknowledged."""
HELD_POLL_SECONDS: Final = 0.25
"""Longest poll interval while acknowledgements are held back."""
WATCH_SECONDS: Final = 2.0
"""Time after the last acknowledgement in which the connection is polled, so that the next one is not sent twice."""
NOTICED_SECONDS: Final = 65.0
"""Time after which the C++ client has noticed a dead connection: it sends a ping every 30 seconds."""

# -- groups ------------------------------------------------------------------------------------------------------------

NATIVE_HOLD_MS: Final = 100
"""Time for which the C++ client's own grouping holds an acknowledgement."""
NATIVE_SECONDS: Final = 0.11
"""That time with a margin: what was passed to the C++ client before was sent."""
GROUPED_SECONDS: Final = 0.5
"""That time on a busy machine: a request sent later proves that what was passed before has arrived."""
MIN_HOLD_MS: Final = 25
"""Shortest time of a group here: this and the C++ client's time are not longer than what was asked for plus a tick."""
PARTIAL_BATCH_SECONDS: Final = 1.0
"""Interval after which a partly acknowledged batch is sent; it may wait up to twice as long."""

# -- after a reconnection ----------------------------------------------------------------------------------------------

RESEND_SECONDS: Final = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Delays after a reconnection at which doubtful acknowledgements are resent until the broker knows the consumer.

The C++ client reports a connection, and sends on it, before that."""
ARRIVED_SECONDS: Final = 1.0
"""Time before an unnoticed disconnection after which acknowledgements have arrived: a short one is noticed at once."""
BROKER_READY_SECONDS: Final = 3.0
"""Time within which the broker usually knows the consumer, if it cannot be probed."""
CHUNKS_SECONDS: Final = (0.3, 3.0, 10.0, 30.0)
"""Delays after a reconnection at which incomplete chunked messages are requested.

After the first, they are requested only if nothing was acknowledged for a while: another consumer may have received
some of their chunks."""
RESEND_FAILURE_SECONDS: Final = 1.0
"""A connection lost this soon after acknowledgements were resent may have been lost because of them."""
RESEND_BLOCK_SECONDS: Final = 2.0
"""Time for which they are not resent then, unless a check shows whether they have arrived."""
KNOWN_SECONDS: Final = 2.0
"""Longest time that a replacement of the native consumer waits until acknowledgements have arrived."""

# -- probes of the broker ----------------------------------------------------------------------------------------------

PROBE_SECONDS: Final = 1.0
PROBE_BUSY_SECONDS: Final = 0.25
"""Probe interval with many unconfirmed acknowledgements: all of them are resent after a lost connection."""
FIRST_PROBE_SECONDS: Final = 0.1
"""Time after a lost connection within which the broker usually knows the consumer again."""
PROBE_RETRY_SECONDS: Final = (0.1, 0.2, 0.4, 0.8)
"""Probe intervals while the broker does not know the consumer yet; the C++ client logs each failure."""
ANSWER_SECONDS: Final = 0.5
"""Interval at which an outstanding answer is checked."""

# -- checks of the cursor ----------------------------------------------------------------------------------------------

CHECK_SECONDS: Final = 2.0
"""Interval of the checks that a run, or a missing consumer, waits for."""
HELD_CHECK_SECONDS: Final = 0.2
"""That interval while acknowledgements are held back."""
ARRIVAL_SECONDS: Final = 0.6
"""Time after which resent acknowledgements have arrived: `GROUPED_SECONDS`, and the way to the broker."""
RETRY_SECONDS: Final = 30.0
"""Time without checks after the admin API did not answer."""
RETURN_SECONDS: Final = 2.0
"""Longest time that the broker takes to list a consumer again that it has closed."""

# -- confirmed flushes -------------------------------------------------------------------------------------------------

FIRST_WAIT_SECONDS: Final = 0.005
LONGEST_WAIT_SECONDS: Final = 0.25
"""Intervals between two checks: they double, as a million acknowledgements take the broker some seconds."""
CONFIRM_RESEND_SECONDS: Final = 0.5
"""Time without progress after which a flush resends what the cursors do not show."""
