"""Java and the jar cache, with stand-ins for `java` and `mvn` on the path: no broker, no network."""

import os
import threading
import zipfile
from pathlib import Path

import pytest

from pulsar_ext.errors import BrokerStartError
from pulsar_ext.testing.backend import choose_backend, process_problem
from pulsar_ext.testing.jars import cached_jars, ensure_jars, find_damage, find_java

MVN = """#!/bin/sh
echo x >> {calls}
for argument; do case $argument in -DoutputDirectory=*) out=${{argument#*=}};; esac; done
cp {jars}/*.jar "$out"; echo "[INFO] Copying pulsar-broker-4.2.4.jar"
"""


def program(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def bin_dir(tmp_path, monkeypatch):
    """Give a directory that is, with /bin, the whole path; the cache is empty and the test's own."""
    directory = tmp_path / "bin"
    directory.mkdir()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cp"):
        (tools / name).symlink_to(Path("/bin", name))
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{tools}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PULSAR_EXT_CACHE", str(tmp_path / "cache"))
    return directory


@pytest.fixture
def maven(bin_dir, tmp_path):
    """Give a `mvn` that copies two jars, and the file it notes its calls in."""
    jars, calls = tmp_path / "jars", tmp_path / "calls"
    jars.mkdir()
    for name in ("pulsar-broker-4.2.4.jar", "other-1.jar"):
        with zipfile.ZipFile(jars / name, "w") as jar:
            jar.writestr("content", name)
    program(bin_dir, "mvn", MVN.format(calls=calls, jars=jars))
    return calls


def test_no_java(bin_dir):
    """Without Java, the error says so and what to install."""
    with pytest.raises(BrokerStartError, match="no java on the path: install Java 17"):
        find_java()


def test_no_java_in_java_home(bin_dir, monkeypatch, tmp_path):
    """A JAVA_HOME without Java is named, rather than another Java taken."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerStartError, match="in JAVA_HOME"):
        find_java()


@pytest.mark.parametrize(("version", "found"), [("1.8.0_402", "8"), ("11.0.2", "11")])
def test_old_java(bin_dir, version, found):
    """A Java that is too old is refused with its version."""
    program(bin_dir, "java", f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2")
    with pytest.raises(BrokerStartError, match=f"is Java {found}, too old"):
        find_java()


def test_new_java(bin_dir):
    """Java 17 and newer are taken."""
    program(bin_dir, "java", "#!/bin/sh\necho 'openjdk version \"21\"' >&2")
    assert find_java() == bin_dir / "java"


def test_no_maven(bin_dir):
    """Without jars and without Maven, the error says what is missing, and so does the choice of the back end."""
    with pytest.raises(BrokerStartError, match="no mvn on the path"):
        ensure_jars()
    program(bin_dir, "java", "#!/bin/sh\necho 'openjdk version \"17\"' >&2")
    assert "install Maven" in str(process_problem())
    with pytest.raises(BrokerStartError, match=r"process cannot be used here.*install Maven"):
        choose_backend("process")


def test_maven_fails(bin_dir):
    """When Maven fails, its own errors are in ours, and no half cache is left."""
    program(bin_dir, "mvn", "#!/bin/sh\necho '[ERROR] offline and not cached'\nexit 1")
    with pytest.raises(BrokerStartError, match=r"exit status 1(.|\n)*offline and not cached"):
        ensure_jars()
    assert [path.name for path in cached_jars().parent.iterdir()] == ["pulsar-4.2.4.lock"]


def test_fetched_once(maven):
    """The jars are fetched once; a second call finds them."""
    messages = []
    directory = ensure_jars(messages.append)
    assert sorted(path.name for path in directory.glob("*.jar")) == ["other-1.jar", "pulsar-broker-4.2.4.jar"]
    assert "not there yet" in messages[0]
    assert ensure_jars() == directory
    assert maven.read_text().count("x") == 1


def test_one_fetches_for_all(maven):
    """Of several that need the jars at once, one fetches them."""
    threads = [threading.Thread(target=ensure_jars) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maven.read_text().count("x") == 1
    assert find_damage(cached_jars()) is None


def damage_by_size(directory: Path) -> None:
    (directory / "other-1.jar").write_bytes(b"cut")


def damage_by_content(directory: Path) -> None:
    path = directory / "other-1.jar"
    path.write_bytes(path.read_bytes()[::-1])


def damage_by_absence(directory: Path) -> None:
    (directory / "other-1.jar").unlink()


def damage_by_a_stranger(directory: Path) -> None:
    (directory / "stranger.jar").touch()


def damage_to_the_manifest(directory: Path) -> None:
    (directory / "manifest.json").write_text("{")


@pytest.mark.parametrize(
    "damage",
    [damage_by_size, damage_by_content, damage_by_absence, damage_by_a_stranger, damage_to_the_manifest],
)
def test_damage_is_repaired(maven, damage):
    """Whatever is wrong with the cache, it is noticed, said, and fetched again."""
    directory = ensure_jars()
    damage(directory)
    assert find_damage(directory)
    messages = []
    assert ensure_jars(messages.append) == directory
    assert find_damage(directory) is None
    assert "damaged" in messages[0]


def test_damage_without_maven_is_told(maven, bin_dir):
    """A damaged cache that cannot be repaired is an error that says which jar and what to do."""
    damage_by_size(ensure_jars())
    (bin_dir / "mvn").unlink()
    with pytest.raises(BrokerStartError, match=r"other-1\.jar.*no mvn"):
        ensure_jars()


def test_touched_is_not_damaged(maven):
    """A jar that was copied with another time but the same content is left alone."""
    directory = ensure_jars()
    os.utime(directory / "other-1.jar", (1, 1))
    assert find_damage(directory) is None


def test_broken_jar_from_maven(maven, tmp_path):
    """A jar that is broken in Maven's own repository is named, instead of being cached."""
    (tmp_path / "jars" / "other-1.jar").write_bytes(b"<html>not found</html>")
    with pytest.raises(BrokerStartError, match=r"local repository are damaged \(other-1\.jar\)"):
        ensure_jars()
    assert not cached_jars().exists()


def test_unwritable_cache(maven, tmp_path, monkeypatch):
    """A cache that cannot be made is named with the variable that moves it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("PULSAR_EXT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(BrokerStartError, match="set PULSAR_EXT_CACHE"):
        ensure_jars()
