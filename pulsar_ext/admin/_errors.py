"""From an HTTP answer or a failed connection to a typed error (pure).

Mirrors `org.apache.pulsar.client.admin.internal.BaseResource.getApiException`. No error carries a credential: the token
is never part of a path, and user and password were taken off the URL before anything was sent.
"""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

from pulsar_ext.errors import (
    AdminConflict,
    AdminError,
    AdminNotAllowed,
    AdminNotFound,
    AdminPrecondition,
    AdminUnauthorized,
    AdminUnavailable,
)

if TYPE_CHECKING:
    from ._core import Answer, Request

__all__ = ["error_of_answer", "error_of_connection", "reason_of"]

_BY_STATUS: dict[int, type[AdminError]] = {
    401: AdminUnauthorized,
    403: AdminUnauthorized,
    404: AdminNotFound,
    405: AdminNotAllowed,
    409: AdminConflict,
    412: AdminPrecondition,
    429: AdminUnavailable,  # httpRequestsLimitEnabled: the broker asks to come back later
    502: AdminUnavailable,
    503: AdminUnavailable,
    504: AdminUnavailable,
}
_HINT = {
    # The broker answers 401 also to a role that it knows but that lacks a permission on a tenant or topic.
    401: "give PulsarAdmin a valid token, of a role that may do this",
    403: "give PulsarAdmin a token of a role that may do this",
    429: "the broker limits its admin requests (httpRequestsLimitEnabled); try again later",
}
_UNSEEN = re.compile(r"<(script|style|title)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_SERVER_ERROR = re.compile(r"Message:\s*(.*?)\s*(?:Stacktrace:|$)", re.DOTALL)
_MAX_REASON = 500


def reason_of(answer: Answer) -> str:
    """Find the broker's own words: its JSON `reason` without the stack trace, or its text without HTML."""
    text = answer.text()
    try:
        data = json.loads(text)
    except ValueError:
        text = html.unescape(_TAG.sub(" ", _UNSEEN.sub(" ", text)))
    else:
        text = str(data.get("reason", text)) if isinstance(data, dict) else str(data)
    if "unexpected error occurred in the server" in text and (match := _SERVER_ERROR.search(text)):
        text = match[1]
    text = " ".join(text.split())
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def error_of_answer(request: Request[Any], base_url: str, answer: Answer) -> AdminError:
    """Map a failure's status to its error; `reason`, `status`, `method` and `path` are attributes."""
    reason = reason_of(answer)
    hint = _HINT.get(answer.status)
    return _BY_STATUS.get(answer.status, AdminError)(
        f"{request.method} {base_url}/admin/v2/{request.path}: HTTP {answer.status}"
        + (f": {reason}" if reason else "")
        + (f" ({hint})" if hint else ""),
        status=answer.status,
        reason=reason,
        method=request.method,
        path=request.path,
    )


def error_of_connection(
    request: Request[Any], base_url: str, cause: Exception, *, sent: bool, attempts: int, seconds: float
) -> AdminUnavailable:
    """Describe that no answer came: what was tried, how often, and what to check.

    Args:
        request: what was to be sent.
        base_url: the admin URL, without credentials.
        cause: what the HTTP library raised.
        sent: whether the broker may have seen the request; the error's attribute `maybe_applied` for a changing call.
        attempts: how often it was tried.
        seconds: how long that took.
    """
    found = str(cause) or type(cause).__name__
    if "CERTIFICATE_VERIFY_FAILED" in found:
        hint = "name the CA's certificate in tls_trust_certs_file_path"
    elif sent:
        hint = (
            "something listens there but gives no HTTP answer in time: check the port (webServicePort), http against "
            "https, the broker's log, and timeout_seconds"
        )
    else:
        hint = "check that a broker's web service listens there (webServicePort), or set PULSAR_ADMIN_URL"
    maybe_applied = sent and not request.may_repeat
    times = "once" if attempts == 1 else f"{attempts} times"
    return AdminUnavailable(
        f"{request.method} {base_url}/admin/v2/{request.path}: no answer: {found} (tried {times} in {seconds:.1f} s)"
        + ("; the broker may have carried it out" if maybe_applied else "")
        + f"; {hint}",
        status=None,
        reason=found,
        method=request.method,
        path=request.path,
        attempts=attempts,
        maybe_applied=maybe_applied,
    )
