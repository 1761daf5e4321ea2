"""FastStream service that handles several orders of one topic concurrently, and publishes an invoice for each.

    python examples/faststream_service.py pulsar://localhost:6650 orders invoices

An order is acknowledged when its invoice is persisted. An order that fails before that is redelivered, so an invoice
may be written twice, and none is missing. An order that cannot be parsed becomes a dead letter. On Ctrl-C or SIGTERM
the service writes the invoices it has begun, and leaves the other orders to the next service.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from faststream import FastStream
from faststream.exceptions import RejectMessage
from pydantic import BaseModel, ValidationError

import pulsar_ext as pulsar
from pulsar_ext.faststream import PulsarBroker, PulsarMessage, PulsarResponse

CONCURRENCY = 50


class Order(BaseModel):
    """Order, with the price of a piece in cents."""

    number: int
    pieces: int
    price: int


class Invoice(BaseModel):
    """Invoice, with its total in cents."""

    order: int
    total: int


def service(service_url: str, orders: str, invoices: str) -> FastStream:
    """Return the service, which runs until it is stopped."""
    broker = PulsarBroker(service_url, log_level=logging.DEBUG)  # at INFO each message logs two lines

    @broker.subscriber(
        orders,
        subscription="billing",
        subscription_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(10, initial_subscription_name="to look at"),
        max_workers=CONCURRENCY,
    )
    @broker.publisher(invoices)
    async def bill(message: PulsarMessage) -> PulsarResponse:
        try:
            order = Order.model_validate_json(message.body)
        except ValidationError as error:
            raise RejectMessage(properties={"reason": error.errors()[0]["msg"]}) from error
        return PulsarResponse(Invoice(order=order.number, total=order.pieces * order.price), key=message.key)

    return FastStream(broker)


if __name__ == "__main__":
    if len(sys.argv) != 4:  # noqa: PLR2004  # the broker and two topics
        sys.exit(__doc__)
    asyncio.run(service(*sys.argv[1:]).run())
