"""The two checks that show whether a broker is ready, each answered within a bounded time.

The round trip runs in a process of its own, because a client that hangs in its C++ core can be stopped in no other way.
This file is also that process's program: it is run by its path, so that nothing but the official client is imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .access import Access

_REQUEST_SECONDS = 5.0


def default_namespace_exists(admin_url: str, access: Access) -> bool:
    """Return whether the admin REST API answers for `public/default`; False while nothing answers at all."""
    import httpx2  # noqa: PLC0415  # the round trip's own process runs this file and needs no HTTP

    try:
        with httpx2.Client(timeout=_REQUEST_SECONDS, **access.http_options()) as http:
            return http.get(f"{admin_url}/admin/v2/namespaces/public/default").status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False


def reported_version(admin_url: str, access: Access) -> str | None:
    """Return the version that a broker says it has, None if it does not say."""
    import httpx2  # noqa: PLC0415  # the round trip's own process runs this file and needs no HTTP

    try:
        with httpx2.Client(timeout=_REQUEST_SECONDS, **access.http_options()) as http:
            answer = http.get(f"{admin_url}/admin/v2/brokers/version")
    except httpx2.TransportError:
        return None
    return answer.text.strip() or None if answer.status_code == httpx2.codes.OK else None


def round_trip(service_url: str, access: Access, *, timeout: float) -> str | None:
    """Send one message and receive it, through the official client.

    Args:
        service_url: where to connect.
        access: what to connect with; it travels through a pipe and shows nowhere.
        timeout: seconds, after which it counts as failed and leaves nothing running.

    Returns:
        None if the message came back, else what went wrong.
    """
    order = json.dumps(
        {
            "service_url": service_url,
            "authentication": access.authentication,
            "options": access.tls_options,
            "timeout": timeout,
        }
    )
    try:
        done = subprocess.run(
            [sys.executable, "-P", __file__], input=order, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {timeout:.0f} s"
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()[-2000:] or "the client ended silently"


def _send_and_receive(
    service_url: str, authentication: tuple[str, list[str]] | None, options: dict[str, Any], timeout: float
) -> None:
    import pulsar  # noqa: PLC0415  # the first check does not need the client

    client = pulsar.Client(
        service_url,
        authentication=getattr(pulsar, authentication[0])(*authentication[1]) if authentication else None,
        operation_timeout_seconds=max(int(timeout), 1),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        **options,
    )
    topic = f"persistent://public/default/pulsar-ext-ready-{uuid.uuid4().hex}"
    # A reader's subscription goes with it, so the topic is all that is left behind.
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    client.create_producer(topic).send(b"ready?")
    received = reader.read_next(timeout_millis=max(int(timeout * 1000), 1000)).data()
    client.close()
    if received != b"ready?":
        raise SystemExit(f"sent b'ready?', received {received!r}")


if __name__ == "__main__":
    _send_and_receive(**json.load(sys.stdin))
