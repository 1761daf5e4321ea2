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
    307: AdminUnavailable,  # one redirect too many: a topic changes hands, and brokers name each other
    308: AdminUnavailable,
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
    307: "the cluster's brokers send each other in circles; try again",
    308: "the cluster's brokers send each other in circles; try again",
    429: "the broker limits its admin requests (httpRequestsLimitEnabled); try again later",
}
_PASSED_ON = frozenset({502, 503, 504})
"""What a proxy answers in the place of a broker that it may have passed the request on to."""
_UNSEEN = re.compile(r"<(script|style|title)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_SERVER_ERROR = re.compile(r"Message:\s*(.*?)\s*(?:Stacktrace:|$)", re.DOTALL)
_TLS_ALERT = re.compile(r"\bALERT\b|_ALERT_", re.IGNORECASE)
"""How OpenSSL words what the other side says as it refuses a connection."""
_MAX_REASON = 500


def reason_of(answer: Answer) -> str:
    """Return the broker's own words: its JSON `reason` or `message`, without stack trace, or its text without HTML."""
    text = answer.text()
    try:
        data = json.loads(text)
    except ValueError:
        text = html.unescape(_TAG.sub(" ", _UNSEEN.sub(" ", text)))
    else:
        # The broker's own errors have a reason; those of its web server, such as a refused token, a message.
        text = str(data.get("reason") or data.get("message") or text) if isinstance(data, dict) else str(data)
    if "unexpected error occurred in the server" in text and (match := _SERVER_ERROR.search(text)):
        text = match[1]
    text = " ".join(text.split())
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def error_of_answer(request: Request[Any], base_url: str, answer: Answer, redirected_to: str = "") -> AdminError:
    """Map a failure's status to its error; `reason`, `status`, `method` and `path` are attributes.

    Args:
        request: what was sent.
        base_url: the admin URL, without credentials.
        answer: the failure.
        redirected_to: the broker that gave it, where that is another one.
    """
    reason, kind = reason_of(answer), _BY_STATUS.get(answer.status, AdminError)
    hint = _HINT.get(answer.status)
    details: dict[str, Any] = {"status": answer.status, "reason": reason}
    details |= {"method": request.method, "path": request.path}
    maybe_applied = answer.status in _PASSED_ON and not request.may_repeat
    if kind is AdminUnavailable:
        details["maybe_applied"] = maybe_applied
    return kind(
        f"{_asked(request, base_url, redirected_to)}: HTTP {answer.status}"
        + (f": {reason}" if reason else "")
        + ("; the broker may have carried it out" if maybe_applied else "")
        + (f" ({hint})" if hint else ""),
        **details,
    )


def error_of_connection(
    request: Request[Any],
    base_url: str,
    cause: Exception,
    *,
    sent: bool,
    attempts: int,
    seconds: float,
    redirected_to: str = "",
    tls_advice: str = "",
) -> AdminUnavailable:
    """Describe that no answer came: what was tried, how often, and what to check.

    Args:
        request: what was to be sent.
        base_url: the admin URL, without credentials.
        cause: what the HTTP library raised.
        sent: whether the broker may have seen the request; the error's attribute `maybe_applied` for a changing call.
        attempts: how often it was tried.
        seconds: how long that took.
        redirected_to: the broker that did not answer, where that is another one.
        tls_advice: what is known of the client's certificate; empty without one.
    """
    found = str(cause) or type(cause).__name__
    if "CERTIFICATE_VERIFY_FAILED" in found and "expired" in found:
        hint = "the broker's certificate, or its authority's, has ended: renew it on the broker"
    elif tls_advice and _TLS_ALERT.search(found):
        hint = tls_advice
    elif "CERTIFICATE_VERIFY_FAILED" in found:
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
        f"{_asked(request, base_url, redirected_to)}: no answer: {found} (tried {times} in {seconds:.1f} s)"
        + ("; the broker may have carried it out" if maybe_applied else "")
        + f"; {hint}",
        status=None,
        reason=found,
        method=request.method,
        path=request.path,
        attempts=attempts,
        maybe_applied=maybe_applied,
    )


def _asked(request: Request[Any], base_url: str, redirected_to: str) -> str:
    """Say what was asked, and of whom."""
    asked = f"{request.method} {base_url}/admin/v2/{request.path}"
    return f"{asked} (redirected to {redirected_to})" if redirected_to else asked
