"""From a received message to its acknowledgement, step by step, for the blocking and the awaited client (pure).

The steps of a message are a generator of calls, see `driving.py`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.errors import InvalidUse
from pulsar_ext.message import handled_in

from .actions import Acknowledge, Action, Redeliver, check_action, check_on_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.message import Message

    from .driving import Steps

__all__ = ["Handling"]

_log = logging.getLogger("pulsar_ext")
_AGAIN = Redeliver()


@dataclass(frozen=True, slots=True)
class Handling:
    """What `process()` was asked for.

    Args:
        handler: is given each message.
        concurrency: how many messages are handled at once, 1 or more.
        on_error: what becomes of a message whose handler raised: an action, or a function of the message and the error
            that gives one.
        has_letters: whether the consumer has retry letters.
        batch_timeout_ms: how long the rest of a batch that was begun is handled after the end, in milliseconds.

    Raises:
        InvalidUse: one of them is not valid.
    """

    handler: Callable[[Message], Any]
    concurrency: int
    on_error: Action | Callable[[Message, Exception], Any]
    has_letters: bool
    batch_timeout_ms: int = 0

    def __post_init__(self) -> None:
        if not callable(self.handler):
            raise InvalidUse(f"handler is expected to be a function of a message, not {self.handler!r}.")
        if type(self.concurrency) is not int or self.concurrency < 1:
            raise InvalidUse(f"concurrency is expected to be an int, 1 or more, not {self.concurrency!r}.")
        check_on_error(self.on_error, has_letters=self.has_letters)
        if type(self.batch_timeout_ms) is not int or self.batch_timeout_ms < 0:
            raise InvalidUse(
                f"batch_timeout_ms must be an int >= 0, got {self.batch_timeout_ms!r}; nothing was received."
            )

    def steps(self, consumer: Any, message: Message) -> Steps:
        """Give the steps of one message: its handler, and what becomes of it then.

        Whatever fails, the message is acknowledged, sent on, or comes again. The steps raise only what ends a program,
        such as `SystemExit`, or a cancellation.
        """
        action: Action = Acknowledge()
        try:
            try:
                with handled_in(message):
                    yield partial(self.handler, message)
            except Exception as error:  # noqa: BLE001  # whatever it is, something has to become of the message
                if callable(self.on_error):
                    chosen = yield partial(self.on_error, message, error)
                    action = check_action(chosen, has_letters=self.has_letters)
                else:
                    action = self.on_error
                    _log.error("A handler raised; %r for %r", action, message.message_id(), exc_info=error)
            yield partial(action.settle, consumer, message)
        except pulsar.AlreadyClosed:  # the consumer, or what sends its letters
            yield from self.refused(consumer, message)
        except Exception:  # noqa: BLE001  # the application's on_error, or a letter that was not persisted
            _log.exception("%r failed; its message %r is delivered again", self.on_error, message.message_id())
            yield from self.refused(consumer, message)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self.refused(consumer, message)
            raise

    def refused(self, consumer: Any, message: Message) -> Steps:
        """Give the steps of a message that no handler is begun for, or ends for: it comes again."""
        with suppress(pulsar.AlreadyClosed):
            try:
                yield partial(_AGAIN.settle, consumer, message)
            except pulsar.AlreadyClosed:
                raise
            except Exception:  # noqa: BLE001  # the subscription's backoff, for one that came so often
                _log.exception("%r is delivered again as one that came once", message.message_id())
                yield partial(consumer.negative_acknowledge, message.message_id())
