"""Checks of a broker's readiness, each within a bounded time.

The round trip runs in a separate process, because a client that hangs in its C++ core can only be killed. This file is
also that process's program: it is run by its path, so that only the official client is imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .access import Access, Options

_REQUEST_SECONDS = 5.0


def default_namespace_exists(admin_url: str, access: Access) -> bool:
    """Return True if the admin REST API answers for `public/default`; False also without an answer."""
    return _get(f"{admin_url}/admin/v2/namespaces/public/default", access) is not None


def reported_version(admin_url: str, access: Access) -> str | None:
    """Return the version that a broker reports, or None if it reports none."""
    return (_get(f"{admin_url}/admin/v2/brokers/version", access) or "").strip() or None


def _get(url: str, access: Access) -> str | None:
    import httpx2  # noqa: PLC0415  # not needed for the round trip

    try:
        with httpx2.Client(timeout=_REQUEST_SECONDS, **access.http_options()) as http:
            answer = http.get(url)
    except httpx2.TransportError:
        return None
    return answer.text if answer.status_code == httpx2.codes.OK else None


def round_trip(service_url: str, access: Access, *, timeout: float) -> str | None:
    """Send and receive one message through the official client; return the error, or None."""
    order = json.dumps([service_url, access.authentication, access.tls_options, timeout])
    try:
        done = subprocess.run(
            [sys.executable, "-P", __file__], input=order, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {timeout:.0f} s"
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()[-2000:] or "the client ended silently"


def _send_and_receive(
    service_url: str, authentication: tuple[str, list[str]] | None, options: Options, timeout: float
) -> None:
    import pulsar  # noqa: PLC0415  # not needed for the other checks

    client = pulsar.Client(
        service_url,
        authentication=getattr(pulsar, authentication[0])(*authentication[1]) if authentication else None,
        operation_timeout_seconds=max(int(timeout), 1),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        **options,
    )
    topic = f"persistent://public/default/pulsar-ext-ready-{uuid.uuid4().hex}"
    # A reader's subscription is deleted with it, so only the topic remains.
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    client.create_producer(topic).send(b"ready?")
    received = reader.read_next(timeout_millis=max(int(timeout * 1000), 1000)).data()
    client.close()
    if received != b"ready?":
        raise SystemExit(f"sent b'ready?', received {received!r}")


if __name__ == "__main__":
    _send_and_receive(*json.load(sys.stdin))
