"""What `AuthenticationOauth2` is given, read for the admin API."""

import base64
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.admin import Oauth2Tokens
from pulsar_ext.admin._oauth2 import Oauth2Parameters
from pulsar_ext.admin._url import is_less_safe
from pulsar_ext.errors import InvalidUse

_SECRET = {"client_id": "me", "client_secret": "s3cret"}
_FORM = {"grant_type": "client_credentials", **_SECRET, "audience": ""}


def _parameters(**values):
    return Oauth2Parameters.parse(json.dumps({"issuer_url": "https://issuer/", **values}))


@pytest.mark.parametrize("form", ["{path}", "file:{path}", "file://{path}", "data"])
def test_every_form_of_the_credentials(form, tmp_path):
    """Path, file URLs and data URL give the same request; a file is read when it is needed."""
    path = tmp_path / "credentials.json"
    key = form.format(path=path)
    if form == "data":
        key = "data:application/json;base64," + base64.b64encode(json.dumps(_SECRET).encode()).decode()
    parameters = _parameters(private_key=key)
    path.write_text(json.dumps(_SECRET))
    assert parameters.form() == _FORM
    assert parameters.configuration_url == "https://issuer/.well-known/openid-configuration"


def test_audience_and_scope():
    """They are sent if they are given; id and secret may be given directly."""
    parameters = _parameters(**_SECRET, audience="urn:pulsar", scope="api")
    assert parameters.form() == {**_FORM, "audience": "urn:pulsar", "scope": "api"}
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
def test_parameters_that_lack_something(text):
    """They are refused when the supplier is made, without repeating anything of them."""
    with pytest.raises(InvalidUse) as caught:
        Oauth2Tokens(text)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "s3cret", '{"client_id": "s3cret"}', '{"client_secret": "s3cret"}'])
def test_credentials_that_cannot_be_read(content, tmp_path):
    """A file that is missing, no JSON or incomplete is refused before anything is sent, and not repeated."""
    path = tmp_path / "credentials.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidUse) as caught:
        _parameters(private_key=str(path)).form()
    assert "s3cret" not in str(caught.value)


@given(st.text())
def test_no_text_breaks_the_reading(text):
    """Whatever is given, it is read or refused."""
    for one in (text, json.dumps({"issuer_url": text})):
        with contextlib.suppress(InvalidUse):
            Oauth2Parameters.parse(one)


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
def test_the_secret_does_not_leave_tls(issuer, endpoint, less):
    """An issuer with TLS cannot send the secret to an endpoint without."""
    assert is_less_safe(issuer, endpoint) is less
