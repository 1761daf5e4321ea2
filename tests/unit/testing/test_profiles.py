"""The profiles, the settings made from them, and the tokens: pure, no broker."""

import base64
import json
import stat
from pathlib import PurePosixPath

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing import PulsarProcess
from pulsar_ext.testing.identity import Identity, TokenSecret
from pulsar_ext.testing.profiles import PROFILES, Profile, broker_settings, get_profile, standalone_conf


def test_names():
    """The profiles exist under their names, and say how clients prove who they are."""
    assert list(PROFILES) == [
        *("plain", "dedup", "batch-index-acks", "entry-index", "small-chunks"),
        *("auth", "tls", "mtls", "basic", "oauth2"),
    ]
    kinds = {name: profile.kind for name, profile in PROFILES.items() if profile.kind is not None}
    assert kinds == {"auth": "token", "mtls": "certificate", "basic": "basic", "oauth2": "oauth2"}


def test_unknown_profile_lists_the_known():
    """A wrong name is refused with the names that would be right."""
    with pytest.raises(InvalidUse, match=r"'dedupe'.*plain, dedup, batch-index-acks"):
        get_profile("dedupe")


def test_own_profile_passes():
    """A profile of the caller's own is as good as a named one."""
    own = Profile("own", "mine", {"backlogQuotaCheckEnabled": "false"})
    assert get_profile(own) is own
    assert broker_settings(own)["backlogQuotaCheckEnabled"] == "false"


@pytest.mark.parametrize("name", PROFILES)
def test_frame_fits_message(name):
    """Under every profile a frame has room for a message of full size and its headers."""
    settings = broker_settings(name)
    assert int(settings["nettyMaxFrameSizeBytes"]) >= int(settings.get("maxMessageSize", 5 << 20)) + 10240


def test_frame_follows_an_override():
    """A caller who changes the message size alone gets a frame size that fits."""
    assert broker_settings(settings={"maxMessageSize": 1000})["nettyMaxFrameSizeBytes"] == "11240"


def test_frame_too_small_is_refused():
    """A frame size that would make the bookie drop connections is refused with the one that works."""
    with pytest.raises(InvalidUse, match=r"too small.*11240"):
        broker_settings(settings={"maxMessageSize": 1000, "nettyMaxFrameSizeBytes": 1000})


def test_later_settings_win():
    """The caller's settings win over the profile's, and those over the base."""
    assert broker_settings("dedup")["brokerDeduplicationEnabled"] == "true"
    assert broker_settings("dedup", settings={"brokerDeduplicationEnabled": False})["brokerDeduplicationEnabled"] == (
        "false"
    )
    assert broker_settings("plain")["acknowledgmentAtBatchIndexLevelEnabled"] == "false"
    assert broker_settings("batch-index-acks")["acknowledgmentAtBatchIndexLevelEnabled"] == "true"


@pytest.mark.parametrize("setting", [{"a=b": 1}, {"": 1}, {"a b": 1}, {"a": "x\ny"}, {"maxMessageSize": "big"}])
def test_bad_settings_are_refused(setting):
    """What cannot stand in a properties file is refused, rather than read by the broker as something else."""
    with pytest.raises(InvalidUse):
        broker_settings(settings=setting)


def test_conf_is_a_properties_file():
    """Each setting is a line of ASCII, which the broker reads as it was meant."""
    assert standalone_conf({"a": "1", "b": "x\\y"}) == "a=1\nb=x\\\\y\n"
    assert standalone_conf({"c": "é𝄞"}) == "c=\\u00e9\\ud834\\udd1e\n"


def test_token_is_a_signed_web_token():
    """A token names algorithm and role, differs by key, and is the same for the same key."""
    secret, other = TokenSecret(b"k" * 32), TokenSecret()
    header, claims, signature = secret.token("bob").split(".")
    decode = lambda part: json.loads(base64.urlsafe_b64decode(part + "=="))  # noqa: E731
    assert (decode(header), decode(claims)) == ({"alg": "HS256", "typ": "JWT"}, {"sub": "bob"})
    assert signature == TokenSecret(b"k" * 32).token("bob").split(".")[2]
    assert signature != other.token("bob").split(".")[2]


@pytest.mark.parametrize("name", [name for name, profile in PROFILES.items() if profile.tls or profile.kind])
def test_secrets_stay_hidden(name, tmp_path):
    """No secret shows in a repr or in a setting; the files are their owner's alone, and are taken again if kept."""
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


def test_a_profile_with_tls_has_no_other_port():
    """Both ports speak TLS, whatever their numbers, and those without are closed."""
    settings = broker_settings("tls", broker_port=1, admin_port=2)
    assert [settings[f"{name}ServicePort{tls}"] for tls in ("", "Tls") for name in ("broker", "web")] == [
        "",
        "",
        "1",
        "2",
    ]


def test_a_profile_with_certificates_keeps_its_settings():
    """Through mtls a profile has TLS, certificates and its own settings; mtls is itself, and so is each standalone."""
    dedup = get_profile("dedup").through("mtls")
    conf = broker_settings(dedup)
    assert (dedup.name, dedup.kind, dedup.tls, dedup.brokers) == ("dedup+mtls", "certificate", True, 1)
    assert conf["brokerDeduplicationEnabled"] == conf["tlsRequireTrustedClientCertOnConnect"] == "true"
    assert get_profile("mtls").through("mtls") == get_profile("mtls")
    assert get_profile("dedup").through("standalone") == get_profile("dedup")


def test_a_profile_of_two_brokers_is_no_standalone():
    """Through a cluster a profile has its own settings and two brokers, which a standalone refuses."""
    dedup = get_profile("dedup").through("cluster")
    assert (dedup.name, dedup.brokers, dedup.settings) == ("dedup+cluster", 2, get_profile("dedup").settings)
    for start in (PulsarProcess, broker_settings):
        with pytest.raises(InvalidUse, match="2 brokers: use start_broker"):
            start(dedup)


@pytest.mark.parametrize("name", ["auth", "tls", "basic", "oauth2"])
def test_no_profile_loses_what_it_is_about(name):
    """One with TLS or an authentication of its own cannot go through mtls; there is no way but those that are named."""
    with pytest.raises(InvalidUse, match="of its own"):
        get_profile(name).through("mtls")
    with pytest.raises(InvalidUse, match="standalone, mtls, cluster"):
        get_profile(name).through("fire")
