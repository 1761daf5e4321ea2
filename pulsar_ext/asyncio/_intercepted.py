"""Awaited consumers and readers with interceptors, chosen when they are opened; without, nothing is in the way."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ._receiving import AsyncReceiving

if TYPE_CHECKING:
    from pulsar_ext.intercept.chain import ReceiverChain
    from pulsar_ext.message import Message

__all__ = ["intercept"]


class _Intercepted(AsyncReceiving):
    """Has interceptors look at each message as it is handed out, in the loop."""

    chain: ReceiverChain[Any]

    async def _receive(self, timeout_millis: int | None) -> Message:
        return self.chain.before(self, await super()._receive(timeout_millis))

    async def _receive_many(self, max_messages: int, timeout_millis: int | None) -> list[Message]:
        return self._seen(await super()._receive_many(max_messages, timeout_millis))

    async def batch_receive(self) -> list[Message]:
        """Receive several messages at once; see `Consumer`."""
        untyped: Any = super()
        return self._seen(await untyped.batch_receive())

    def _seen(self, messages: list[Message]) -> list[Message]:
        return [self.chain.before(self, message) for message in messages]

    def _end_receives_(self) -> None:
        """Have every receive raise `AlreadyClosed`: it is closed, and so are the interceptors."""
        super()._end_receives_()
        self.chain.close()


@cache
def _class_of(kind: Any) -> type[Any]:
    return type(f"Intercepted{kind.__name__}", (_Intercepted, kind), {"__module__": kind.__module__})


def intercept(receiving: Any, chain: ReceiverChain[Any]) -> None:
    """Have an awaited consumer or reader call interceptors from now on."""
    receiving.chain = chain
    chain.show(receiving)
    kind: Any = type(receiving)
    receiving.__class__ = _class_of(kind)
