"""What the awaited client does besides opening and closing: it asks, as `client/tools.py` does, on a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsar_ext._runtime.statistics import ClientStats
    from pulsar_ext.client.client import Client as BlockingClient
    from pulsar_ext.doctor.findings import Diagnosis, DiagnosisLimits
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.look.survey import Survey
    from pulsar_ext.skip.skipper import SkipResult

    from ._executor import Executor

__all__ = ["ClientTools"]


class ClientTools:
    """What an awaited `Client` offers on top of the official one."""

    blocking: BlockingClient
    _executor: Executor

    async def stats(self) -> ClientStats:
        """Give statistics of everything that is open; see `pulsar_ext.Client`."""
        return await self._executor.run(self.blocking.stats)

    async def resolve_message_id(self, topic: str, message_id: Any) -> MessageId:
        """Find out whether an id is part of a chunked message; see `pulsar_ext.Client`."""
        return await self._executor.run(self.blocking.resolve_message_id, topic, message_id)

    async def message_id_after(self, topic: str, message_id: Any, count: int) -> MessageId | None:
        """Find the message that is `count` messages after another; see `pulsar_ext.Client`."""
        return await self._executor.run(self.blocking.message_id_after, topic, message_id, count)

    async def skip_messages(self, topic: str, subscription: str, count: int, **options: Any) -> SkipResult:
        """Skip messages that a subscription has not acknowledged; see `pulsar_ext.Client`."""
        return await self._executor.run(self.blocking.skip_messages, topic, subscription, count, **options)

    async def diagnose(
        self, target: str, *, subscription: str | None = None, limits: DiagnosisLimits | None = None
    ) -> Diagnosis:
        """Find out why backlogs do not go away; see `pulsar_ext.Client`."""
        return await self._executor.run(self.blocking.diagnose, target, subscription=subscription, limits=limits)

    async def look(
        self, topic: str, *, subscription: str | None = None, limits: DiagnosisLimits | None = None
    ) -> Survey:
        """Look at a topic as a map; see `pulsar_ext.Client`."""
        return await self._executor.run(self.blocking.look, topic, subscription=subscription, limits=limits)
