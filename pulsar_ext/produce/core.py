"""The steps of a batched send that the native core has in C++, each with its counterpart in Python."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pulsar_ext._native import core
from pulsar_ext._native.messages import InnerMessage, batch_message
from pulsar_ext._native.results import Result
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._wire.batch_payload import batch_parts, whole_batch
from pulsar_ext.ids.message_id import id_in_batch

Item = tuple[bytes, SendCallback | None, int, bytes, bytes]
"""A message in an open batch: payload, callback, sequence id, and what `option_fields` and `key_fields` wrote."""
Columns = tuple[Sequence[bytes], Sequence[SendCallback | None], Sequence[int], Sequence[bytes], Sequence[bytes]]


_log = logging.getLogger("pulsar_ext")


if TYPE_CHECKING or not core.IS_USED:

    class Items(list["Item"]):
        """The messages of an open batch; one is appended in one step, so that an interrupt cannot part it."""

        def columns(self) -> Columns:
            """Return payloads, callbacks, sequence ids, fields and keys; there is a message."""
            contents, callbacks, ids, fields, keys = zip(*self, strict=True)
            return contents, callbacks, ids, fields, keys

    def batch_payload(contents: Sequence[bytes], ids: Sequence[int], fields: Sequence[bytes] | None, /) -> bytes:
        """Return the payload of a batch; the arguments are those of `batch_parts`."""
        return b"".join(batch_parts(contents, ids, fields))

    def entry_message(payload: bytes, count: int, sequence_id: int, keys: bytes, /) -> InnerMessage:
        """Return the C++ message that is one entry of `count` messages; the arguments are those of `whole_batch`."""
        return batch_message(whole_batch((payload,), count, sequence_id, keys), count)

    def deliver(
        callbacks: Sequence[SendCallback | None], result: Result, ledger: int, entry: int, partition: int, /
    ) -> None:
        """Call the callbacks of a batch with their result and ids; log what one raises."""
        for index, callback in enumerate(callbacks):
            if callback is not None:
                call_back(callback, result, id_in_batch((ledger, entry, partition, index), len(callbacks)))

    def joining(send_async: Callable[..., None], _sender: object, _sequence: object, /) -> Callable[..., None]:
        """Return a sender's `send_async`, for which plain messages join the open batch in C++."""
        return send_async

else:
    Items, batch_payload, entry_message = core.Items, core.batch_payload, core.batch_message
    joining = core.joiner
    deliver = partial(core.deliver, lambda error: _log.error("A send callback raised", exc_info=error))
