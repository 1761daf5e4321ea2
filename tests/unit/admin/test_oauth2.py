"""Parameters of `AuthenticationOauth2` are parsed for the admin API."""

import base64
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.admin import Oauth2Tokens
from pulsar_ext.admin._url import is_less_safe
from pulsar_ext.errors import InvalidUse

_SECRET = {"client_id": "me", "client_secret": "s3cret"}
_FORM = {"grant_type": "client_credentials", **_SECRET, "audience": ""}


def _parameters(**values):
    return Oauth2Tokens(json.dumps({"issuer_url": "https://issuer/", **values}))


@pytest.mark.parametrize("form", ["{path}", "file:{path}", "file://{path}", "data"])
def test_all_forms_of_credentials_are_equal(form, tmp_path):
    """A path, file URLs and a data URL yield equal requests; a file is read when it is needed."""
    path = tmp_path / "credentials.json"
    key = form.format(path=path)
    if form == "data":
        key = "data:application/json;base64," + base64.b64encode(json.dumps(_SECRET).encode()).decode()
    parameters = _parameters(private_key=key)
    path.write_text(json.dumps(_SECRET))
    assert parameters._form() == _FORM


def test_audience_and_scope_are_sent():
    """Audience and scope are sent if they are set; id and secret may be passed directly."""
    parameters = _parameters(**_SECRET, audience="urn:pulsar", scope="api")
    assert parameters._form() == {**_FORM, "audience": "urn:pulsar", "scope": "api"}
    assert "s3cret" not in repr(parameters)


@pytest.mark.parametrize(
    "text",
    [
        "s3cret",
        '["s3cret"]',
        '{"client_secret": "s3cret"}',
        '{"issuer_url": "ftp://i", "client_id": "a", "client_secret": "s3cret"}',
        '{"issuer_url": "http://i", "client_secret": "s3cret"}',
        '{"issuer_url": "http://i", "client_id": "a"}',
    ],
)
def test_incomplete_parameters_raise(text):
    """Incomplete parameters raise on construction, and the error repeats nothing of them."""
    with pytest.raises(InvalidUse) as caught:
        Oauth2Tokens(text)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "s3cret", '{"client_id": "s3cret"}', '{"client_secret": "s3cret"}'])
def test_unreadable_credentials_raise(content, tmp_path):
    """A missing, invalid or incomplete credentials file raises before a request, and the error does not repeat it."""
    path = tmp_path / "credentials.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidUse) as caught:
        _parameters(private_key=str(path))._form()
    assert "s3cret" not in str(caught.value)


@given(st.text())
def test_any_parameters_are_parsed_or_raise(text):
    """Any text is parsed or raises InvalidUse."""
    for one in (text, json.dumps({"issuer_url": text})):
        with contextlib.suppress(InvalidUse):
            Oauth2Tokens(one)


@pytest.mark.parametrize(
    ("issuer", "endpoint", "less"),
    [
        ("https://i", "https://other/token", False),
        ("https://i", "http://i/token", True),
        ("http://i", "http://i/token", False),
        ("http://i", "https://i/token", False),
        ("http://i", "", True),
        ("http://i", "file:///etc/passwd", True),
    ],
)
def test_secret_is_not_sent_without_tls(issuer, endpoint, less):
    """The secret of an issuer with TLS is not sent to an endpoint without TLS."""
    assert is_less_safe(issuer, endpoint) is less
