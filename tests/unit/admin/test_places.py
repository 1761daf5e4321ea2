"""Which admin URLs there are, which is asked first, and where a secret may go."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.admin import PulsarAdmin, derive_admin_url
from pulsar_ext.admin._core import Answer
from pulsar_ext.admin._session import Authorization, Places, brokers_of, questions_about_brokers, redirect_target
from pulsar_ext.admin._url import AdminUrl, host_of
from pulsar_ext.errors import AdminError, AdminRequired, InvalidUse

_BASES = ("https://a:8443", "https://b:8443", "https://c:8443")


def test_several_urls_of_one_cluster():
    """A list and hosts with commas give the same URLs, each once, in their order."""
    listed = AdminUrl.parse(["https://a:8443", "https://b:8443/", "https://a:8443"])
    assert listed == AdminUrl.parse("https://a:8443,b:8443")
    assert listed.bases == _BASES[:2]
    assert listed.uses_tls
    assert not AdminUrl.parse("http://a:8080").uses_tls


@pytest.mark.parametrize(
    "urls", [[], ["https://a", 3], ["https://me:s3cret@a", "https://me:0ther@b"], ["https://a", ""]]
)
def test_urls_that_do_not_go_together(urls):
    """No URL, no text, and different passwords are refused, without repeating one."""
    with pytest.raises(InvalidUse) as caught:
        PulsarAdmin(urls)
    assert not {"s3cret", "0ther"} & set(str(caught.value).split())


def test_a_password_of_one_url_is_that_of_all():
    """User and password need to be in one of the URLs only."""
    assert AdminUrl.parse(["https://a", "https://me:s3cret@b"]).credentials == ("me", "s3cret")


@given(st.lists(st.sampled_from(_BASES)))
def test_the_one_that_answered_last_is_asked_first(answered):
    """Whatever answers, all are asked in the same circle, beginning with the one that answered last."""
    places = Places(_BASES)
    for base in answered:
        places.answered(base)
    expected = answered[-1] if answered else _BASES[0]
    at = _BASES.index(expected)
    assert places.in_order() == _BASES[at:] + _BASES[:at]
    assert places.first == expected


def test_a_secret_goes_to_known_hosts_only():
    """Known are the hosts that were given and those that the cluster lists, whatever the port and the case."""
    places = Places(["https://a:8443", "https://[::1]:8443"])
    assert places.knows("https://A:1/admin/v2/x")
    assert places.knows("https://[::1]/x")
    for foreign in ("https://b:8443/", "https://a.evil/", "https://a@evil/", "https:///x", "https://[/", "nonsense"):
        assert not places.knows(foreign)
    places.learn(brokers_of(Answer(200, {}, b'["b:8080", "c:8080"]')))
    assert places.knows("https://b:8443/")
    assert not places.knows("https://evil/")


def test_where_a_topic_is_says_who_is_a_broker():
    """Who may not list the brokers may ask for the topic's; both answers give hosts."""
    assert questions_about_brokers("clusters") == questions_about_brokers("persistent/t/n") == ("admin/v2/brokers",)
    asked = questions_about_brokers("persistent/t/n/a%2Fb/stats")
    assert asked == ("admin/v2/brokers", "lookup/v2/topic/persistent/t/n/a%2Fb")
    found = {"brokerUrl": "pulsar://b:6650", "httpUrl": "http://h:8080", "httpUrlTls": None, "nativeUrl": "x://n"}
    assert brokers_of(Answer(200, {}, json.dumps(found).encode())) == {"b", "h"}
    assert brokers_of(Answer(403, {}, b'["evil:80"]')) == frozenset()


@given(
    st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_whatever_is_no_list_of_brokers(body):
    """Any answer gives hosts or none; an empty host is never among them, so that no URL without a host is known."""
    assert "" not in brokers_of(Answer(200, {}, body))


@pytest.mark.parametrize("location", ["http://a/x", "ftp://a/x", "//", "javascript:x"])
def test_no_redirect_leaves_tls(location):
    """From https nothing leads to anything else; a path alone stays on the same host."""
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
def test_a_secret_is_not_sent_to_a_guess(service_url):
    """With a token or a password, a port is guessed with TLS only; what was named is taken as it is."""
    plain = derive_admin_url(service_url, {})
    assert derive_admin_url(service_url, {"PULSAR_ADMIN_URL": "http://x:1"}, has_secret=True) == "http://x:1"
    if service_url.startswith("pulsar://"):
        with pytest.raises(AdminRequired, match="Nothing was sent; give admin="):
            derive_admin_url(service_url, {}, has_secret=True)
    else:
        assert derive_admin_url(service_url, {}, has_secret=True) == plain


def test_one_kind_of_credentials():
    """Token and password together are refused, wherever they come from; nothing of either shows."""
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
