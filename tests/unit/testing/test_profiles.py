"""Profiles, the settings made from them, and tokens: pure, no broker."""

import base64
import json
import stat
from pathlib import PurePosixPath

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing import PulsarProcess
from pulsar_ext.testing.identity import Identity, signed_token
from pulsar_ext.testing.profiles import PROFILES, Profile, broker_settings, get_profile, standalone_conf


def test_profiles_have_names_and_kinds():
    """The profiles have their names, and their kinds of authentication."""
    assert list(PROFILES) == [
        *("plain", "dedup", "batch-index-acks", "entry-index", "small-chunks"),
        *("auth", "tls", "mtls", "basic", "oauth2"),
    ]
    kinds = {name: profile.kind for name, profile in PROFILES.items() if profile.kind is not None}
    assert kinds == {"auth": "token", "mtls": "certificate", "basic": "basic", "oauth2": "oauth2"}


def test_unknown_profile_lists_the_known_ones():
    """An unknown name raises an error with the known ones."""
    with pytest.raises(InvalidUse, match=r"'dedupe'.*plain, dedup, batch-index-acks"):
        get_profile("dedupe")


def test_profile_of_the_caller_is_used():
    """A profile of the caller is used like a named one."""
    own = Profile("own", "mine", {"backlogQuotaCheckEnabled": "false"})
    assert get_profile(own) is own
    assert broker_settings(own)["backlogQuotaCheckEnabled"] == "false"


@pytest.mark.parametrize("name", PROFILES)
def test_frame_fits_message(name):
    """With every profile a frame has room for a message of full size and its headers."""
    settings = broker_settings(name)
    assert int(settings["nettyMaxFrameSizeBytes"]) >= int(settings.get("maxMessageSize", 5 << 20)) + 10240


def test_frame_size_follows_the_message_size():
    """The frame size follows a message size that is set alone."""
    assert broker_settings(settings={"maxMessageSize": 1000})["nettyMaxFrameSizeBytes"] == "11240"


def test_frame_size_that_is_too_small_raises():
    """A frame size with which the bookie would drop connections raises an error with a valid one."""
    with pytest.raises(InvalidUse, match=r"too small.*11240"):
        broker_settings(settings={"maxMessageSize": 1000, "nettyMaxFrameSizeBytes": 1000})


def test_later_settings_take_precedence():
    """The caller's settings override the profile's, and those override the base."""
    assert broker_settings("dedup")["brokerDeduplicationEnabled"] == "true"
    assert broker_settings("dedup", settings={"brokerDeduplicationEnabled": False})["brokerDeduplicationEnabled"] == (
        "false"
    )
    assert broker_settings("plain")["acknowledgmentAtBatchIndexLevelEnabled"] == "false"
    assert broker_settings("batch-index-acks")["acknowledgmentAtBatchIndexLevelEnabled"] == "true"


@pytest.mark.parametrize("setting", [{"a=b": 1}, {"": 1}, {"a b": 1}, {"a": "x\ny"}, {"maxMessageSize": "big"}])
def test_bad_settings_raise(setting):
    """A setting that is not valid in a properties file raises, so that the broker cannot misread it."""
    with pytest.raises(InvalidUse):
        broker_settings(settings=setting)


def test_conf_is_a_properties_file():
    """Each setting is a line of ASCII, which the broker reads unchanged."""
    assert standalone_conf({"a": "1", "b": "x\\y"}) == "a=1\nb=x\\\\y\n"
    assert standalone_conf({"c": "é𝄞"}) == "c=\\u00e9\\ud834\\udd1e\n"


def test_token_is_a_signed_web_token():
    """A token has its algorithm and role, differs by key, and is equal for equal keys."""
    header, claims, signature = signed_token(b"k" * 32, "bob").split(".")
    decode = lambda part: json.loads(base64.urlsafe_b64decode(part + "=="))  # noqa: E731
    assert (decode(header), decode(claims)) == ({"alg": "HS256", "typ": "JWT"}, {"sub": "bob"})
    assert signature == signed_token(b"k" * 32, "bob").split(".")[2]
    assert signature != signed_token(b"o" * 32, "bob").split(".")[2]


@pytest.mark.parametrize("name", [name for name, profile in PROFILES.items() if profile.tls or profile.kind])
def test_secrets_stay_hidden(name, tmp_path):
    """Secrets are in no repr and no setting; their files are private, and are reused if they exist."""
    identity = Identity.make(PROFILES[name])
    identity.write(tmp_path)
    access = identity.access(tmp_path)
    settings = standalone_conf(broker_settings(name, settings=identity.settings(PurePosixPath(tmp_path))))
    hidden = [access.token, *(access.basic or ())[1:], access.oauth2]
    for secret in filter(None, hidden):
        assert secret not in settings + repr(identity) + repr(access)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} <= {0o600}
    again = Identity.load(PROFILES[name], tmp_path)
    assert again.files() == identity.files()
    for one in (identity, again):
        one.close()


def test_tls_profile_has_no_plain_port():
    """Both ports use TLS, and the plain ones are closed."""
    settings = broker_settings("tls", broker_port=1, admin_port=2)
    assert [settings[f"{name}ServicePort{tls}"] for tls in ("", "Tls") for name in ("broker", "web")] == [
        "",
        "",
        "1",
        "2",
    ]


def test_profile_through_mtls_keeps_its_settings():
    """Through mtls a profile has TLS, certificates and its own settings; mtls and standalone change nothing else."""
    dedup = get_profile("dedup").through("mtls")
    conf = broker_settings(dedup)
    assert (dedup.name, dedup.kind, dedup.tls, dedup.brokers) == ("dedup+mtls", "certificate", True, 1)
    assert conf["brokerDeduplicationEnabled"] == conf["tlsRequireTrustedClientCertOnConnect"] == "true"
    assert get_profile("mtls").through("mtls") == get_profile("mtls")
    assert get_profile("dedup").through("standalone") == get_profile("dedup")


def test_profile_through_cluster_has_two_brokers():
    """Through a cluster a profile has its own settings and two brokers, which a standalone broker rejects."""
    dedup = get_profile("dedup").through("cluster")
    assert (dedup.name, dedup.brokers, dedup.settings) == ("dedup+cluster", 2, get_profile("dedup").settings)
    for start in (PulsarProcess, broker_settings):
        with pytest.raises(InvalidUse, match="2 brokers; use start_broker"):
            start(dedup)


@pytest.mark.parametrize("name", ["auth", "tls", "basic", "oauth2"])
def test_profile_with_its_own_authentication_cannot_be_mtls(name):
    """A profile with its own TLS or authentication cannot go through mtls, and an unknown way raises."""
    with pytest.raises(InvalidUse, match="has its own TLS"):
        get_profile(name).through("mtls")
    with pytest.raises(InvalidUse, match="standalone, mtls, cluster"):
        get_profile(name).through("fire")
