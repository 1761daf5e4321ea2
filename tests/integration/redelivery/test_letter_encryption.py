"""Letters of encrypted messages: encrypted with a known public key, otherwise in the clear with a warning."""

from __future__ import annotations

import logging
import urllib.request

import pytest
from chunked import THREE_CHUNKS
from encryption_keys import encryption_key_files
from stored import entries

import pulsar_ext as pulsar

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of a private and of a public key."""
    return [*map(str, encryption_key_files(tmp_path_factory.mktemp("keys")))]


@pytest.fixture
def both(files):
    """A key reader that encrypts and decrypts."""
    private, public = files
    return pulsar.CryptoKeyReader(public, private)


@pytest.fixture
def decrypts(files):
    """A key reader that only decrypts."""
    return pulsar.CryptoKeyReader("", files[0])


def subscribe(client, topic, **options):
    """Subscribe with a policy of one retry before the dead letter."""
    policy = pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-DLQ")
    retry = {"enable_retry": True, "retry_letter_topic": f"{topic}-RETRY", "dead_letter_policy": policy}
    return client.subscribe(topic, "s", SHARED, **retry, **options)


def send(client, topic, *contents, **encryption):
    """Send messages, the large ones in chunks."""
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True, **encryption)
    for content in contents:
        producer.send(content)
    producer.close()


def retry_until_dead(consumer, count):
    """Send messages to the retry topic, and then to the dead letter topic."""
    for _ in range(2 * count):
        consumer.reconsume_later(consumer.receive(20_000), 0)


def encryption_of_letters(admin, topic):
    """Return whether the retry letters and the dead letters are encrypted, as a set."""
    return {one.encrypted for kind in ("RETRY", "DLQ") for one in entries(admin, f"{topic}-{kind}")}


@pytest.mark.core
def test_letters_of_encrypted_messages_encryption_of_letters(client, admin, topic, both):
    """The letters of encrypted messages, also chunked ones, are encrypted; other letters are not."""
    consumer = subscribe(client, topic, crypto_key_reader=both)
    secret = [b"secret", b"s" * THREE_CHUNKS]
    send(client, topic, *secret, encryption_key="k", crypto_key_reader=both)
    retry_until_dead(consumer, 2)
    assert encryption_of_letters(admin, topic) == {True}
    reader = client.create_reader(f"{topic}-DLQ", pulsar.MessageId.earliest, crypto_key_reader=both)
    assert sorted(reader.read_next(20_000).data() for _ in secret) == sorted(secret)
    send(client, topic, b"open")
    retry_until_dead(consumer, 1)
    assert encryption_of_letters(admin, topic) == {True, False}


def test_letter_encryption_key_encrypts_every_letter(client, admin, topic, both):
    """With `letter_encryption_key` the letters of unencrypted messages are encrypted too."""
    consumer = subscribe(client, topic, letter_encryption_key="letters", letter_crypto_key_reader=both)
    send(client, topic, b"open")
    consumer.send_dead_letter(consumer.receive(20_000))
    assert {one.encrypted for one in entries(admin, f"{topic}-DLQ")} == {True}


def test_letters_in_the_clear_are_logged_once(client, admin, topic, both, decrypts, caplog):
    """Without a public key the letters of encrypted messages are in the clear, with one warning."""
    consumer = subscribe(client, topic, crypto_key_reader=decrypts)
    send(client, topic, b"1", b"2", encryption_key="k", crypto_key_reader=both)
    with caplog.at_level(logging.WARNING, "pulsar_ext"):
        retry_until_dead(consumer, 2)
    assert encryption_of_letters(admin, topic) == {False}
    assert caplog.text.count("sent in the clear") == 1


def test_required_encryption_fails_letters_in_the_clear(client, broker, topic, both, decrypts):
    """A letter in the clear fails with the reason if the namespace requires encryption, and its message stays."""
    send(client, topic, b"1", encryption_key="k", crypto_key_reader=both)
    options = {"initial_position": pulsar.InitialPosition.Earliest, "negative_ack_redelivery_delay_ms": 100}
    consumer = subscribe(client, topic, crypto_key_reader=decrypts, **options)
    namespace = "/".join(topic.removeprefix("persistent://").split("/")[:2])
    policy = f"{broker.admin_url}/admin/v2/namespaces/{namespace}/encryptionRequired"
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(policy, b"true", headers)).close()
    message = consumer.receive(20_000)
    with pytest.raises(pulsar.PulsarException, match=r"[Ee]ncrypt"):
        consumer.send_dead_letter(message)
    consumer.negative_acknowledge(message)
    assert consumer.receive(20_000).data() == b"1"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"letter_encryption_key": ""}, "letter_encryption_key must be the name of a key, got ''"),
        ({"letter_encryption_key": "k"}, "letter_encryption_key needs letter_crypto_key_reader"),
        ({"letter_crypto_key_reader": "k"}, "letter_crypto_key_reader must be a CryptoKeyReader, got 'k'"),
    ],
)
def test_arguments_of_letters_are_checked(client, admin, topic, options, error):
    """An argument of the wrong type, or without a key reader, raises before anything is opened."""
    with pytest.raises(pulsar.InvalidUse, match=error):
        subscribe(client, topic, **options)
    assert topic not in admin.topics("/".join(topic.removeprefix("persistent://").split("/")[:2]))
