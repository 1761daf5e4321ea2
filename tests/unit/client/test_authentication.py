"""Credentials of a client's arguments reach the admin API, or the client raises."""

import inspect
import json
from functools import partial

import pulsar as official
import pytest

import pulsar_ext
from pulsar_ext.client.authentication import credentials_of
from pulsar_ext.client.client import admin_at, derive_admin
from pulsar_ext.errors import AdminRequired, AdminUnavailable, InvalidUse

_PARAMETERS = json.dumps({"issuer_url": "http://issuer", "client_id": "me", "client_secret": "s3cret"})
_ARGUMENTS = {
    "AuthenticationToken": ("s3cret",),
    "AuthenticationTLS": ("/cert.pem", "/s3cret.pem"),
    "AuthenticationBasic": ("me", "s3cret"),
    "AuthenticationOauth2": (_PARAMETERS,),
}


@pytest.fixture(autouse=True)
def _without_environment(monkeypatch):
    monkeypatch.delenv("PULSAR_ADMIN_URL", raising=False)


def with_defaults(**given):
    """Return a client's arguments by name."""
    parameters = inspect.signature(official.Client.__init__).parameters.values()
    return {one.name: one.default for one in parameters if one.name != "self"} | given


@pytest.mark.parametrize("name", _ARGUMENTS)
def test_own_classes_subclass_the_official_ones(name):
    """Each class has the official signature, is a subclass of the official one, and shows no secret."""
    own_class, official_class = getattr(pulsar_ext, name), getattr(official, name)
    made = own_class(*_ARGUMENTS[name])
    assert isinstance(made, official_class)
    names = [list(inspect.signature(one.__init__).parameters) for one in (own_class, official_class)]
    assert names[0] == names[1]
    assert name == "AuthenticationTLS" or "s3cret" not in repr(made)
    given = credentials_of(made, None)
    assert name == "AuthenticationTLS" or "s3cret" not in repr(given)
    assert given.has_secret is (name != "AuthenticationTLS")


def test_credentials_reach_the_admin_api():
    """Token, supplier, certificate and password reach the admin API unchanged, in either form."""
    supplier = lambda: "s3cret"  # noqa: E731
    assert credentials_of(pulsar_ext.AuthenticationToken("s3cret"), None).token == "s3cret"
    assert credentials_of(pulsar_ext.AuthenticationToken(supplier), None).token is supplier
    assert credentials_of(pulsar_ext.AuthenticationTLS("/c", "/k"), None).certificate == ("/c", "/k")
    text = json.dumps({"username": "me", "password": "s3cret", "method": "mine"})
    for basic in (
        pulsar_ext.AuthenticationBasic("me", "s3cret"),
        pulsar_ext.AuthenticationBasic(auth_params_string=text),
    ):
        assert credentials_of(basic, None).basic == ("me", "s3cret")
    assert callable(credentials_of(pulsar_ext.AuthenticationOauth2(_PARAMETERS), None).token)


@pytest.mark.parametrize("name", [*_ARGUMENTS, "Authentication"])
@pytest.mark.parametrize("source", ["given", "environment", "derived"])
def test_official_authentication_raises(name, source, monkeypatch):
    """The admin API must be passed with an official object; the error says how, and repeats none of its arguments."""
    if name == "Authentication":
        made = object.__new__(official.Authentication)
    else:
        made = getattr(official, name)(*_ARGUMENTS[name])
    arguments = with_defaults(service_url="pulsar+ssl://h:6651", authentication=made)
    if source == "environment":
        monkeypatch.setenv("PULSAR_ADMIN_URL", "https://h:8443")
    make = derive_admin if source != "given" else partial(admin_at, "https://h:8443")
    with pytest.raises(AdminRequired, match=r"Client\(admin=PulsarAdmin\(") as caught:
        make(arguments)
    assert "s3cret" not in str(caught.value)
    assert (f"pulsar_ext.{name}" in str(caught.value)) is (name != "Authentication")


@pytest.mark.parametrize("name", ["AuthenticationToken", "AuthenticationBasic", "AuthenticationOauth2"])
def test_secret_needs_tls_for_a_derived_port(name, monkeypatch):
    """The admin URL must be explicit without TLS, by the argument or the environment."""
    made = getattr(pulsar_ext, name)(*_ARGUMENTS[name])
    plain = with_defaults(service_url="pulsar://h:6650,h2:6650", authentication=made)
    with pytest.raises(AdminRequired, match="pass admin=") as caught:
        derive_admin(plain)
    assert "s3cret" not in str(caught.value)
    assert derive_admin(with_defaults(service_url="pulsar+ssl://h:6651", authentication=made)).url == "https://h:8443"
    assert admin_at(["http://a:1", "http://b:1"], plain).url == "http://a:1"
    monkeypatch.setenv("PULSAR_ADMIN_URL", "http://h:8080")
    assert derive_admin(plain).url == "http://h:8080"


def test_port_is_derived_without_a_secret():
    """A port is derived without a secret, but not from a service URL that changes."""
    assert derive_admin(with_defaults(service_url="pulsar://h:6650")).url == "http://h:8080"
    with pytest.raises(AdminUnavailable, match="Client\\(admin="):
        derive_admin(with_defaults(service_url=object()))


def test_missing_certificate_file_raises():
    """A missing certificate file raises when the admin API is created."""
    tls = pulsar_ext.AuthenticationTLS("/nonexistent", "/nonexistent")
    with pytest.raises(InvalidUse, match="/nonexistent"):
        derive_admin(with_defaults(service_url="pulsar+ssl://h", authentication=tls))
    with pytest.raises(InvalidUse, match="/absent"):
        derive_admin(with_defaults(service_url="pulsar+ssl://h", tls_certificate_file_path="/absent"))


def test_host_name_is_checked(monkeypatch):
    """The host name is checked as in the client, and always with public authorities."""
    seen = []
    monkeypatch.setattr("pulsar_ext.client.client.PulsarAdmin", lambda _url, **options: seen.append(options))
    for trust, validate in ((None, False), (None, True), ("/ca", False), ("/ca", True)):
        derive_admin(
            with_defaults(service_url="pulsar+ssl://h", tls_trust_certs_file_path=trust, tls_validate_hostname=validate)
        )
    assert [one["tls_validate_hostname"] for one in seen] == [True, True, False, True]


@pytest.mark.parametrize("admin", [3, object(), {"url": 1}])
def test_invalid_admin_raises(admin):
    """A value that is neither an admin API nor URLs raises when the client is created."""
    with pytest.raises(InvalidUse, match="admin must be"):
        pulsar_ext.Client("pulsar://localhost:1", admin=admin)
