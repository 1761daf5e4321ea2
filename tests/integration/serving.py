"""A replier that runs during a test, of either client."""

from __future__ import annotations

import asyncio
import threading

from awaited import AwaitedClient


class Serving:
    """Replier that runs on a thread."""

    def __init__(self, client, topic, handler, *, concurrency=4, **options):
        if isinstance(client, AwaitedClient):
            handler = async_form(handler)
        self.replier = client.replier(topic, handler, **options)
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(concurrency,))

    def _run(self, concurrency):
        try:
            self.replier.run(concurrency=concurrency)
        except Exception as error:  # noqa: BLE001  # checked at the end
            self.error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        while self._thread.is_alive():  # `run()` may not have begun
            self.replier.stop()
            self._thread.join(0.1)
        self.replier.close()
        assert self.error is None


def async_form(handler):
    """Return an async function that runs a handler on a thread."""

    async def handle(message):
        return await asyncio.to_thread(handler, message)

    return handle


def echo(message):
    return b"re: " + message.data()
