"""Admin URLs, their order of use, and the hosts that receive secrets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.admin import PulsarAdmin, derive_admin_url
from pulsar_ext.admin._core import Answer
from pulsar_ext.admin._session import Authorization, broker_lookup_paths, brokers_of, redirect_target
from pulsar_ext.admin._url import ClusterAddresses, host_of
from pulsar_ext.errors import AdminError, AdminRequired, InvalidUse

_BASES = ("https://a:8443", "https://b:8443", "https://c:8443")


def test_list_and_commas_yield_equal_urls():
    """A list and hosts with commas yield equal URLs, each once, in their order."""
    listed = ClusterAddresses(["https://a:8443", "https://b:8443/", "https://a:8443"])
    assert listed.bases == ClusterAddresses("https://a:8443,b:8443").bases
    assert listed.bases == _BASES[:2]
    assert listed.uses_tls
    assert not ClusterAddresses("http://a:8080").uses_tls


@pytest.mark.parametrize(
    "urls", [[], ["https://a", 3], ["https://me:s3cret@a", "https://me:0ther@b"], ["https://a", ""]]
)
def test_inconsistent_urls_raise(urls):
    """An empty list, a value that is not text, and different passwords raise, and the error repeats no password."""
    with pytest.raises(InvalidUse) as caught:
        PulsarAdmin(urls)
    assert not {"s3cret", "0ther"} & set(str(caught.value).split())


def test_password_of_one_url_applies_to_all():
    """User and password may be in only one of the URLs."""
    assert ClusterAddresses(["https://a", "https://me:s3cret@b"]).credentials == ("me", "s3cret")


@given(st.lists(st.sampled_from(_BASES)))
def test_url_that_answered_last_is_used_first(answered):
    """All URLs are used in a fixed circular order that begins with the one that answered last."""
    addresses = ClusterAddresses(_BASES)
    for base in answered:
        addresses.prefer(base)
    expected = answered[-1] if answered else _BASES[0]
    at = _BASES.index(expected)
    assert addresses.bases == _BASES[at:] + _BASES[:at]
    assert addresses.bases[0] == expected


def test_a_secret_goes_to_known_hosts_only():
    """Secrets are sent to hosts that were passed or that the cluster lists, in any case and on any port."""
    addresses = ClusterAddresses(["https://a:8443", "https://[::1]:8443"])
    assert addresses.is_known("https://A:1/admin/v2/x")
    assert addresses.is_known("https://[::1]/x")
    for foreign in ("https://b:8443/", "https://a.evil/", "https://a@evil/", "https:///x", "https://[/", "nonsense"):
        assert not addresses.is_known(foreign)
    addresses.add_brokers(brokers_of(Answer(200, {}, b'["b:8080", "c:8080"]')))
    assert addresses.is_known("https://b:8443/")
    assert not addresses.is_known("https://evil/")


def test_topic_lookup_lists_brokers_without_superuser():
    """The broker list and a topic lookup both yield hosts; a role without permission for the list may look up."""
    assert broker_lookup_paths("clusters") == broker_lookup_paths("persistent/t/n") == ("admin/v2/brokers",)
    asked = broker_lookup_paths("persistent/t/n/a%2Fb/stats")
    assert asked == ("admin/v2/brokers", "lookup/v2/topic/persistent/t/n/a%2Fb")
    found = {"brokerUrl": "pulsar://b:6650", "httpUrl": "http://h:8080", "httpUrlTls": None, "nativeUrl": "x://n"}
    assert brokers_of(Answer(200, {}, json.dumps(found).encode())) == {"b", "h"}
    assert brokers_of(Answer(403, {}, b'["evil:80"]')) == frozenset()


@given(
    st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_response_yields_no_empty_host(body):
    """Any response yields hosts or none, and never an empty host, which a URL without a host would match."""
    assert "" not in brokers_of(Answer(200, {}, body))


@pytest.mark.parametrize("location", ["http://a/x", "ftp://a/x", "//", "javascript:x"])
def test_redirect_never_drops_tls(location):
    """A redirect from https never leads to another scheme; a path alone stays on the host."""
    answer = Answer(307, {"location": location}, b"")
    if location == "//":
        assert host_of(redirect_target("https://a/x", answer)) == "a"
    else:
        with pytest.raises(AdminError):
            redirect_target("https://a/x", answer)
    assert redirect_target("http://a/x", Answer(307, {"location": "https://b/x"}, b"")) == "https://b/x"


@pytest.mark.parametrize(
    "service_url", ["pulsar://h:6650", "pulsar://h,h2", "pulsar+ssl://h", "http://h:1", "https://h"]
)
def test_secret_is_not_sent_to_a_derived_http_url(service_url):
    """A token or a password is sent to a derived port only with TLS; an explicit URL is used unchanged."""
    plain = derive_admin_url(service_url, {})
    assert derive_admin_url(service_url, {"PULSAR_ADMIN_URL": "http://x:1"}, has_secret=True) == "http://x:1"
    if service_url.startswith("pulsar://"):
        with pytest.raises(AdminRequired, match="Nothing was sent; pass admin="):
            derive_admin_url(service_url, {}, has_secret=True)
    else:
        assert derive_admin_url(service_url, {}, has_secret=True) == plain


def test_two_kinds_of_credentials_raise():
    """A token and a password together raise, from any arguments, and the error shows neither."""
    for url, options in (
        ("http://u:s3cret@h", {"token": "t0ken"}),
        ("http://u:s3cret@h", {"basic": ("u", "other")}),
        ("http://h", {"token": "t0ken", "basic": ("u", "s3cret")}),
    ):
        with pytest.raises(InvalidUse) as caught:
            PulsarAdmin(url, **options)
        assert not {"s3cret", "t0ken", "other"} & set(str(caught.value).split())
    assert "s3cret" not in repr(Authorization(None, ("u", "s3cret")))
    assert Authorization(None, ("me", "pw")).headers() == {"Authorization": "Basic bWU6cHc="}
    assert Authorization(lambda: "t\n", None).headers() == {"Authorization": "Bearer t"}
    assert not Authorization(None, None).is_secret
