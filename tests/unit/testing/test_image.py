"""Which image is run, what goes into the one that is built here, and what is said when neither can be had."""

import shutil
import zipfile
from pathlib import Path

import pytest

from pulsar_ext.errors import BrokerStartError
from pulsar_ext.testing import image

_NO_ENGINE = "unix:///nonexistent/engine.sock"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PULSAR_EXT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PULSAR_EXT_IMAGE", raising=False)


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
def test_jars_of_what_a_standalone_broker_never_runs_are_left_out(name):
    """Jars of etcd, Kubernetes, native TLS and the state storage count as unneeded, with any version and classifier."""
    assert image.is_unneeded(name)


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
    """Jars of the broker, its storage, tokens, TLS and schemas are not caught by the patterns of the others."""
    assert not image.is_unneeded(name)


@pytest.mark.parametrize(
    ("machine", "native"), [("x86_64", "librocksdbjni-linux64.so"), ("aarch64", "librocksdbjni-linux-aarch64.so")]
)
def test_native_libraries_of_other_machines_are_left_out(tmp_path, machine, native):
    """Of a jar with native libraries for many systems, one library and every class stay."""
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

    image.slim_jars([jar], tmp_path / "out", machine)

    assert _entries(tmp_path / "out" / jar.name) == {native, "org/rocksdb/RocksDB.class"}


def test_of_fastutil_only_what_others_refer_to_stays(tmp_path):
    """A class that a kept jar names stays with all that it names in turn, and nothing else does."""
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

    image.slim_jars([fastutil, broker, unneeded], tmp_path / "out", "x86_64")

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [fastutil.name, broker.name]
    assert _entries(tmp_path / "out" / fastutil.name) == {
        f"{root}longs/LongSet.class",
        f"{root}longs/LongCollection.class",
        "META-INF/LICENSE",
    }


def test_an_image_that_is_named_is_taken_as_it_is(monkeypatch):
    """The argument wins over the environment, which wins over everything else, and no engine is asked."""
    monkeypatch.setenv("DOCKER_HOST", _NO_ENGINE)
    monkeypatch.setenv("PULSAR_EXT_IMAGE", "from-environment:1")

    assert image.choose_image("from-argument:1") == "from-argument:1"
    assert image.choose_image() == "from-environment:1"
    assert image.image_problem() is None


def test_without_an_engine_the_error_says_what_to_do(monkeypatch):
    """Where no engine answers, a `BrokerStartError` names the remedies instead of a connection's stack trace."""
    monkeypatch.setenv("DOCKER_HOST", _NO_ENGINE)

    with pytest.raises(BrokerStartError, match=r"no Docker engine answers.*DOCKER_HOST.*broker process"):
        image.choose_image()


def test_a_registry_that_did_not_answer_is_not_asked_again_soon(tmp_path, monkeypatch):
    """After a refusal has been noted, the answer is no without any engine or network being asked."""
    monkeypatch.setenv("DOCKER_HOST", _NO_ENGINE)
    image._remember_refusal("official:1", OSError("no such host"), lambda _: None)

    assert image._registry_answers("official:1", lambda _: None) is False


def test_the_tag_names_what_is_in_the_image(tmp_path, monkeypatch):
    """Any change to a file of docker/, to the machine or to the base is another tag; no change is the same tag."""
    copy = tmp_path / "docker"
    shutil.copytree(image.docker_directory(), copy)
    monkeypatch.setattr(image, "docker_directory", lambda: copy)
    before = image.local_tag("x86_64")

    assert image.local_tag("x86_64") == before
    others = {image.local_tag("aarch64"), image.local_tag("x86_64", base_image="eclipse-temurin:17-jre")}
    for path in (copy / "Dockerfile", copy / "rootfs", copy / "bin" / "standalone", copy / "bin" / "healthcheck"):
        path.write_text(path.read_text() + "\n# changed\n")
        others.add(image.local_tag("x86_64"))
    assert len(others | {before}) == 7


def test_the_tag_names_the_version():
    """Another version of Pulsar is another image, and its tag begins with it."""
    assert image.local_tag("x86_64", "4.0.7").startswith("pulsar-ext-standalone:4.0.7-")
    assert image.official_image("4.0.7") == "apachepulsar/pulsar:4.0.7"


def test_only_what_was_found_out_with_the_default_version_is_left_out(tmp_path):
    """Of another version the jars stay that the list of unneeded ones names, and foreign natives go all the same."""
    names = ["grpc-core-1.jar", "netty-tcnative-boringssl-static-2-osx-x86_64.jar", "pulsar-broker-4.0.7.jar"]
    jars = [_make_jar(tmp_path / name, {"A.class": b""}) for name in names]
    (tmp_path / "out").mkdir()

    image.slim_jars(jars, tmp_path / "out", "x86_64", leave_out=False)

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["grpc-core-1.jar", "pulsar-broker-4.0.7.jar"]


def test_a_base_that_cannot_be_made_is_told_with_the_remedy(monkeypatch, tmp_path):
    """Without debootstrap the problem names it, how to install it, and the ways around it."""
    monkeypatch.setenv("PATH", str(tmp_path))

    problem = image.build_problem()

    assert problem is not None
    for remedy in ("apt-get install debootstrap", "PULSAR_EXT_IMAGE", "process"):
        assert remedy in problem


def test_the_command_line_refuses_a_used_directory_in_one_line(tmp_path, capsys):
    """`context` into a directory with files ends with status 1 and one line, and leaves the files alone."""
    (tmp_path / "mine").write_text("keep")

    assert image.main(["context", str(tmp_path), "--machine", "x86_64"]) == 1

    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_command_line_refuses_an_unknown_machine_in_one_line(tmp_path, capsys):
    """A machine without an image is refused before anything is fetched."""
    assert image.main(["context", str(tmp_path / "new"), "--machine", "pdp11"]) == 1

    assert "x86_64, aarch64" in capsys.readouterr().err
