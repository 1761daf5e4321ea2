"""Content of the image of `docker/`, its tag, and errors."""

import shutil
import zipfile
from pathlib import Path

import pytest
import small_image


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PULSAR_EXT_CACHE", str(tmp_path / "cache"))


def _make_jar(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as jar:
        for name, content in entries.items():
            jar.writestr(name, content)
    return path


def _entries(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as jar:
        return set(jar.namelist())


@pytest.mark.parametrize(
    "name",
    [
        "grpc-netty-shaded-1.75.0.jar",
        "client-java-api-23.0.0.jar",
        "bcpkix-jdk18on-1.84.jar",
        "stream-storage-server-4.17.3.jar",
        "netty-tcnative-boringssl-static-2.0.78.Final-linux-x86_64.jar",
        "distributedlog-core-4.17.3-tests.jar",
    ],
)
def test_jars_that_a_broker_never_loads_are_unneeded(name):
    """Jars of etcd, Kubernetes, native TLS and the state storage are unneeded, with any version and classifier."""
    assert small_image.is_unneeded(name)


@pytest.mark.parametrize(
    "name",
    [
        "pulsar-broker-4.2.4.jar",
        "pulsar-client-original-4.2.4.jar",
        "rocksdbjni-7.9.2.jar",
        "jjwt-impl-0.13.0.jar",
        "bcprov-jdk18on-1.84.jar",
        "netty-tcnative-classes-2.0.78.Final.jar",
        "bookkeeper-server-4.17.3.jar",
        "avro-1.12.0.jar",
    ],
)
def test_jars_that_the_profiles_use_are_kept(name):
    """Jars of the broker, its storage, tokens, TLS and schemas are not matched by the patterns."""
    assert not small_image.is_unneeded(name)


@pytest.mark.parametrize(
    ("machine", "native"), [("x86_64", "librocksdbjni-linux64.so"), ("aarch64", "librocksdbjni-linux-aarch64.so")]
)
def test_native_libraries_of_other_machines_are_omitted(tmp_path, machine, native):
    """A single library and every class of a jar with many native libraries are kept."""
    natives = [
        "librocksdbjni-linux32.so",
        "librocksdbjni-linux64.so",
        "librocksdbjni-linux64-musl.so",
        "librocksdbjni-linux-aarch64.so",
        "librocksdbjni-linux-aarch64-musl.so",
        "librocksdbjni-linux-ppc64le.so",
        "librocksdbjni-linux-s390x.so",
        "librocksdbjni-osx-arm64.jnilib",
        "librocksdbjni-osx-x86_64.jnilib",
        "librocksdbjni-win64.dll",
    ]
    jar = _make_jar(tmp_path / "rocksdbjni-7.9.2.jar", dict.fromkeys([*natives, "org/rocksdb/RocksDB.class"], b"x"))
    (tmp_path / "out").mkdir()

    small_image.slim_jars([jar], tmp_path / "out", machine)

    assert _entries(tmp_path / "out" / jar.name) == {native, "org/rocksdb/RocksDB.class"}


def test_only_referenced_fastutil_classes_are_kept(tmp_path):
    """A fastutil class that a kept jar refers to is kept with all classes that it refers to in turn."""
    root = "it/unimi/dsi/fastutil/"
    fastutil = _make_jar(
        tmp_path / "fastutil-8.5.16.jar",
        {
            f"{root}longs/LongSet.class": f"..{root}longs/LongCollection..".encode(),
            f"{root}longs/LongCollection.class": b"java/util/Collection",
            f"{root}doubles/DoubleSet.class": b"",
            "META-INF/LICENSE": b"",
        },
    )
    broker = _make_jar(tmp_path / "pulsar-broker-4.2.4.jar", {"A.class": f"\1{root}longs/LongSet\1".encode()})
    unneeded = _make_jar(tmp_path / "grpc-core-1.75.0.jar", {"B.class": f"{root}doubles/DoubleSet".encode()})
    (tmp_path / "out").mkdir()

    small_image.slim_jars([fastutil, broker, unneeded], tmp_path / "out", "x86_64")

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [fastutil.name, broker.name]
    assert _entries(tmp_path / "out" / fastutil.name) == {
        f"{root}longs/LongSet.class",
        f"{root}longs/LongCollection.class",
        "META-INF/LICENSE",
    }


def test_tag_depends_on_the_content(tmp_path, monkeypatch):
    """Any change to a file of docker/, the machine or the base changes the tag; without a change it is equal."""
    copy = tmp_path / "docker"
    shutil.copytree(small_image.SOURCE, copy)
    monkeypatch.setattr(small_image, "SOURCE", copy)
    before = small_image.local_tag("x86_64")

    assert small_image.local_tag("x86_64") == before
    others = {small_image.local_tag("aarch64"), small_image.local_tag("x86_64", base_image="eclipse-temurin:17-jre")}
    for path in (copy / "Dockerfile", copy / "rootfs", copy / "bin" / "standalone", copy / "bin" / "healthcheck"):
        path.write_text(path.read_text() + "\n# changed\n")
        others.add(small_image.local_tag("x86_64"))
    assert len(others | {before}) == 7


def test_tag_begins_with_the_version():
    """The tag of another version is different and begins with the version."""
    assert small_image.local_tag("x86_64", "4.0.7").startswith("pulsar-ext-standalone:4.0.7-")


def test_unneeded_jars_are_omitted_in_the_default_version_only(tmp_path):
    """With another version unneeded jars are kept, but not native libraries of other machines."""
    names = ["grpc-core-1.jar", "netty-tcnative-boringssl-static-2-osx-x86_64.jar", "pulsar-broker-4.0.7.jar"]
    jars = [_make_jar(tmp_path / name, {"A.class": b""}) for name in names]
    (tmp_path / "out").mkdir()

    small_image.slim_jars(jars, tmp_path / "out", "x86_64", drop_unneeded=False)

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["grpc-core-1.jar", "pulsar-broker-4.0.7.jar"]


def test_missing_debootstrap_is_reported_with_remedies(monkeypatch, tmp_path):
    """Without debootstrap the problem has its installation and the alternatives."""
    monkeypatch.setenv("PATH", str(tmp_path))

    problem = small_image.build_problem()

    assert problem is not None
    for remedy in ("apt-get install debootstrap", "--base-image", "process"):
        assert remedy in problem


def test_context_in_a_used_directory_is_an_error(tmp_path, capsys):
    """`context` into a directory with files ends with status 1 and one line, and does not change the files."""
    (tmp_path / "mine").write_text("keep")

    assert small_image.main(["context", str(tmp_path), "--machine", "x86_64"]) == 1

    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_context_for_an_unknown_machine_is_an_error(tmp_path, capsys):
    """An unknown machine is an error before anything is fetched."""
    assert small_image.main(["context", str(tmp_path / "new"), "--machine", "pdp11"]) == 1

    assert "x86_64, aarch64" in capsys.readouterr().err
