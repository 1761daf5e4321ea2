"""End-to-end encryption with Spark: public key for writes, private key for reads, errors without them."""

from __future__ import annotations

import pytest
from spark_topics import fill, keep_everything, key_files, numbers, options_of

from pulsar_ext.errors import InvalidUse

PySparkException = pytest.importorskip("pyspark.errors").PySparkException

pytestmark = [pytest.mark.xdist_group("spark-write"), pytest.mark.filterwarnings("default")]

KINDS = {
    "batched": {},
    "batched by key": {"pulsar.producer.batchingType": "KeyBased"},
    "chunked": {"pulsar.producer.chunkingEnabled": "true"},
    "compressed": {"pulsar.producer.compressionType": "ZSTD"},
}


@pytest.fixture
def keys(tmp_path):
    """Return the options of a read and of a write that name the files of a key pair."""
    return key_files(tmp_path)


def write(spark, broker, topic, count, **more):
    """Write numbers; if messages are chunked, each tenth is larger than a chunk."""
    size = "if(id % 10 = 0, 230000, 8)" if "pulsar.producer.chunkingEnabled" in more else "8"
    frame = spark.range(0, count, 1, 1).selectExpr(f"rpad(id, {size}, ' ') value", "concat('k', id % 7) __key")
    frame.write.format("pulsar").options(**options_of(broker, topic, **more)).mode("append").save()


def read(spark, broker, topic, **more):
    return spark.read.format("pulsar").options(**options_of(broker, topic, **more)).load()


@pytest.mark.parametrize("kind", list(KINDS))
def test_encrypted_rows_are_read_back(spark, broker, client, admin, pulsar_topic_factory, keys, kind):
    """Every entry of the write is encrypted, and its rows are read back together with unencrypted messages."""
    reading, writing = keys
    topic = pulsar_topic_factory(broker=broker)
    keep_everything(admin, topic)
    write(spark, broker, topic, 200, **writing, **KINDS[kind])
    stats = admin.internal_stats(topic)
    (ledger,) = stats.ledger_sizes()
    written = [admin.entry(topic, ledger[0], entry) for entry in range(stats.number_of_entries)]
    assert written
    assert all(one.encrypted for one in written)
    last = fill(client, topic, 20, kinds=("plain", "chunked"), start=200)
    for columns in ("value,__key", "value,__key,__sequenceId"):
        rows = read(spark, broker, topic, **reading, columns=columns).collect()
        assert numbers(rows) == list(range(last))
        assert {bytes(row["__key"]) for row in rows[:200]} == {b"k%d" % number for number in range(7)}


def test_encrypted_messages_without_key_raise(spark, broker, client, admin, pulsar_topic_factory, keys, tmp_path):
    """Without the private key, or with another one, a read of encrypted messages fails with the remedy."""
    topic = pulsar_topic_factory(broker=broker)
    keep_everything(admin, topic)
    fill(client, topic, 5, kinds=("plain",))
    write(spark, broker, topic, 50, **keys[1])
    with pytest.raises(PySparkException, match="is encrypted: set option cryptoPrivateKeyFile"):
        read(spark, broker, topic).collect()
    (tmp_path / "other").mkdir()
    other, _ = key_files(tmp_path / "other")
    with pytest.raises(PySparkException, match=r"is encrypted: does the key in .* decrypt it"):
        read(spark, broker, topic, pollTimeoutMs="5000", **other).collect()
    fill(client, topic, 5, kinds=("plain",), start=55)
    with pytest.raises(PySparkException, match="is encrypted: set option cryptoPrivateKeyFile"):
        read(spark, broker, topic).collect()
    with pytest.raises(PySparkException, match=r"is encrypted: does the key in .* decrypt it"):
        read(spark, broker, topic, pollTimeoutMs="5000", **other).collect()


def test_key_files_are_checked(spark, broker, topic, client, keys, tmp_path):
    """A missing or wrong key file fails the task with its content; one of two key options alone fails at load."""
    fill(client, topic, 5, kinds=("plain",))
    public = keys[1]["cryptoPublicKeyFile"]
    for file, message in (("missing.pem", "with --files"), (public, "has BEGIN PUBLIC KEY"), (__file__, "has no PEM")):
        with pytest.raises(PySparkException, match=message):
            read(spark, broker, topic, cryptoPrivateKeyFile=file).collect()
    with pytest.raises(PySparkException, match="has BEGIN PRIVATE KEY"):
        write(spark, broker, topic, 5, cryptoPublicKeyFile=keys[0]["cryptoPrivateKeyFile"], encryptionKey="app")
    for option in ("cryptoPublicKeyFile", "encryptionKey"):
        with pytest.raises((InvalidUse, PySparkException), match=f"{option} needs"):
            write(spark, broker, topic, 5, **{option: "x"})
