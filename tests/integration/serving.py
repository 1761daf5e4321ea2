"""A replier that runs while a test asks, with either client."""

from __future__ import annotations

import asyncio
import threading

from awaited import AwaitedClient


class Serving:
    """A replier that runs on a thread."""

    def __init__(self, client, topic, handler, *, concurrency=4, **options):
        if isinstance(client, AwaitedClient):
            handler = awaited_form(handler)
        self.replier = client.replier(topic, handler, **options)
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(concurrency,))

    def _run(self, concurrency):
        try:
            self.replier.run(concurrency=concurrency)
        except Exception as error:  # noqa: BLE001  # looked at in the end
            self.error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        while self._thread.is_alive():  # it may not have begun
            self.replier.stop()
            self._thread.join(0.1)
        self.replier.close()
        assert self.error is None


def awaited_form(handler):
    """Give an async function of a handler, which runs on a thread."""

    async def handle(message):
        return await asyncio.to_thread(handler, message)

    return handle


def echo(message):
    return b"re: " + message.data()
