"""Java and the jar cache, with fake `java` and `mvn` on the path: no broker, no network."""

import os
import threading
import zipfile
from pathlib import Path

import pytest

from pulsar_ext.errors import BrokerStartError, InvalidUse
from pulsar_ext.testing import jars as harness_jars
from pulsar_ext.testing.backend import choose_backend, process_problem
from pulsar_ext.testing.jars import cached_jars, committed_sums, ensure_jars, find_damage, find_java, follow, sum_of
from pulsar_ext.testing.profiles import OTHER_VERSIONS, PULSAR_VERSION

UNLISTED = "4.98.7"
"""A version without a committed list."""

MVN = """#!/bin/sh
echo x >> {calls}
for argument; do case $argument in
    -DoutputDirectory=*) out=${{argument#*=}};;
    --strict-checksums) strict=yes;;
    */pom.xml) cp "$argument" {calls}.pom;;
esac; done
[ "$strict" = yes ] || exit 3
cp {jars}/*.jar "$out"; echo "[INFO] Copying pulsar-broker-4.98.7.jar"
"""

# As Maven does: a missing version fails, and a range is answered from the metadata.
MVN_WITHOUT = """#!/bin/sh
pom=; next=; debug=
for argument; do
    [ -z "$next" ] || pom=$argument
    next=; case $argument in -f) next=yes;; -X) debug=yes;; esac
done
if grep -q '(,0]' "$pom"; then
    [ -z "$debug" ] || echo '[DEBUG] Using local repository at {repository}'
    echo '[ERROR] No versions available'
else
    grep -q '>4.98.7<' "$pom" || exit 3
    echo '[ERROR] offline and not cached'
fi
exit 1
"""


def program(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def bin_dir(tmp_path, monkeypatch):
    """Return a directory that is, with /bin, the whole path; the cache is empty."""
    directory = tmp_path / "bin"
    directory.mkdir()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cp", "grep"):
        (tools / name).symlink_to(Path("/bin", name))
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{tools}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PULSAR_EXT_PULSAR_VERSION", UNLISTED)
    monkeypatch.setenv("PULSAR_EXT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(harness_jars, "_OTHER_JAVAS", [f"{tmp_path}/jvm/*/bin/java"])
    return directory


@pytest.fixture
def maven(bin_dir, tmp_path):
    """Install a `mvn` that copies two jars, and return the file in which it records its calls."""
    jars, calls = tmp_path / "jars", tmp_path / "calls"
    jars.mkdir()
    for name in ("pulsar-broker-4.98.7.jar", "other-1.jar"):
        with zipfile.ZipFile(jars / name, "w") as jar:
            jar.writestr("content", name)
    program(bin_dir, "mvn", MVN.format(calls=calls, jars=jars))
    return calls


def test_missing_java_raises(bin_dir):
    """Without Java the error says what to install."""
    with pytest.raises(BrokerStartError, match="java not found on the path: install Java 17"):
        find_java()


def test_missing_java_in_java_home_raises(bin_dir, monkeypatch, tmp_path):
    """A JAVA_HOME without Java is an error, even if another Java is on the path."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerStartError, match="in JAVA_HOME"):
        find_java()


@pytest.mark.parametrize(("version", "found"), [("1.8.0_402", "8"), ("11.0.2", "11")])
def test_old_java_raises(bin_dir, version, found):
    """A Java that is too old is an error with its version."""
    program(bin_dir, "java", f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2")
    with pytest.raises(BrokerStartError, match=f"is Java {found}, too old"):
        find_java()


def test_new_java_is_found(bin_dir):
    """Java 17 and newer are used."""
    java(bin_dir, "21")
    assert find_java() == bin_dir / "java"


def java(directory: Path, version: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    program(directory, "java", f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2")
    return directory / "java"


def test_oldest_sufficient_java_is_found(bin_dir, tmp_path):
    """Pulsar 5 gets the oldest Java from 21 on in the usual directories; older versions get that of the path."""
    first = java(bin_dir, "17.0.1")
    for number in ("25.0.3", "21.0.2", "11.0.2"):
        java(tmp_path / "jvm" / number / "bin", number)
    (tmp_path / "jvm/1/bin").mkdir(parents=True)
    program(tmp_path / "jvm/1/bin", "java", "#!/bin/sh\nexit 1")
    assert find_java("5.0.1") == tmp_path / "jvm/21.0.2/bin/java"
    assert find_java("4.2.4") == find_java("3.0.7") == find_java() == first


def test_java_home_takes_precedence_if_it_is_new_enough(bin_dir, tmp_path, monkeypatch):
    """The Java of JAVA_HOME runs Pulsar 5 if it can, also beside an older sufficient one."""
    java(tmp_path / "jvm/21/bin", "21.0.2")
    chosen = java(tmp_path / "home/bin", "25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java("5.0.1") == chosen


def test_missing_java_21_lists_what_was_found(bin_dir, tmp_path):
    """The error has the version of each Java, the required one and the version of Pulsar."""
    paths = java(bin_dir, "17.0.1"), java(tmp_path / "jvm/a/bin", "11.0.2")
    with pytest.raises(BrokerStartError) as caught:
        find_java("5.0.1")
    expected = f"{paths[0]} is Java 17, {paths[1]} is Java 11, too old for Pulsar 5.0.1: install Java 21 or newer"
    assert expected in str(caught.value)


def test_missing_maven_raises(bin_dir):
    """Without jars and Maven the error says what to install, also that of the choice of the back end."""
    with pytest.raises(BrokerStartError, match="mvn is not found on the path"):
        ensure_jars()
    program(bin_dir, "java", "#!/bin/sh\necho 'openjdk version \"17\"' >&2")
    assert "install Maven" in str(process_problem())
    with pytest.raises(BrokerStartError, match=r"process is unavailable.*install Maven"):
        choose_backend("process")


def test_failed_maven_raises(bin_dir):
    """The error has Maven's errors, and no incomplete cache remains."""
    program(bin_dir, "mvn", "#!/bin/sh\necho '[ERROR] offline and not cached'\nexit 1")
    with pytest.raises(BrokerStartError, match=r"exit status 1(.|\n)*offline and not cached"):
        ensure_jars()
    assert [path.name for path in cached_jars().parent.iterdir()] == ["pulsar-4.98.7.lock"]


def metadata(repository: Path, name: str, *versions: str) -> None:
    """Write the metadata that Maven stores of a repository into its local repository."""
    directory = repository / "org/apache/pulsar/pulsar-broker"
    directory.mkdir(parents=True, exist_ok=True)
    listed = "".join(f"<version>{version}</version>" for version in versions)
    text = f"<metadata><versioning><versions>{listed}</versions></versioning></metadata>"
    (directory / f"maven-metadata-{name}.xml").write_text(text)


def test_unserved_version_lists_the_served_ones(bin_dir, tmp_path):
    """The error lists the versions in all configured repositories, newest first, as text and as an attribute."""
    metadata(tmp_path / "m2", "first", "4.0.10", "4.0.9", "5.0.0-M1")
    metadata(tmp_path / "m2", "second", "4.2.4", "4.0.9")
    program(bin_dir, "mvn", MVN_WITHOUT.format(repository=tmp_path / "m2"))
    with pytest.raises(BrokerStartError, match=r"do not have Pulsar 4\.98\.7; they have 5\.0\.0-M1, 4\.2\.4") as caught:
        ensure_jars()
    assert caught.value.served == ["5.0.0-M1", "4.2.4", "4.0.10", "4.0.9"]


def test_partly_served_version_is_reported(bin_dir, tmp_path):
    """An error because of missing dependencies says so, with Maven's errors and the other versions."""
    metadata(tmp_path / "m2", "first", "4.2.4", "4.98.7")
    program(bin_dir, "mvn", MVN_WITHOUT.format(repository=tmp_path / "m2"))
    with pytest.raises(
        BrokerStartError,
        match=r"without some of its dependencies; they have 4\.98\.7, 4\.2\.4(.|\n)*offline and not cached",
    ):
        ensure_jars()


def test_jars_are_fetched_once(maven):
    """A second call uses the fetched jars."""
    messages = []
    directory = ensure_jars(messages.append)
    assert sorted(path.name for path in directory.glob("*.jar")) == ["other-1.jar", "pulsar-broker-4.98.7.jar"]
    assert "not fetched yet" in messages[0]
    assert ensure_jars() == directory
    assert maven.read_text().count("x") == 1


def test_one_thread_fetches_for_all(maven):
    """Several threads need the jars at the same time, and one fetches them."""
    threads = [threading.Thread(target=ensure_jars) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maven.read_text().count("x") == 1
    assert find_damage() is None


def damage_by_size(directory: Path) -> None:
    (directory / "other-1.jar").write_bytes(b"cut")


def damage_by_content(directory: Path) -> None:
    path = directory / "other-1.jar"
    path.write_bytes(path.read_bytes()[::-1])


def damage_by_absence(directory: Path) -> None:
    (directory / "other-1.jar").unlink()


def damage_by_an_extra_jar(directory: Path) -> None:
    (directory / "extra.jar").touch()


def damage_to_the_record(directory: Path) -> None:
    (directory / "jars.sha256").write_text("{")


@pytest.mark.parametrize(
    "damage",
    [damage_by_size, damage_by_content, damage_by_absence, damage_by_an_extra_jar, damage_to_the_record],
)
def test_damage_is_repaired(maven, damage):
    """Any damage of the cache is detected, reported, and repaired by another fetch."""
    directory = ensure_jars()
    damage(directory)
    assert find_damage()
    messages = []
    assert ensure_jars(messages.append) == directory
    assert find_damage() is None
    assert "damaged" in messages[0]


def test_damage_without_maven_raises(maven, bin_dir):
    """A damaged cache that cannot be repaired is an error with the jar and what to do."""
    damage_by_size(ensure_jars())
    (bin_dir / "mvn").unlink()
    with pytest.raises(BrokerStartError, match=r"other-1\.jar.*mvn is not found"):
        ensure_jars()


def test_touched_jar_is_not_damaged(maven):
    """A jar with another time and equal content is valid."""
    directory = ensure_jars()
    os.utime(directory / "other-1.jar", (1, 1))
    assert find_damage() is None


def test_broken_jar_of_maven_raises(maven, tmp_path):
    """A broken jar in Maven's repository is an error with its name, and is not cached."""
    (tmp_path / "jars" / "other-1.jar").write_bytes(b"<html>not found</html>")
    with pytest.raises(BrokerStartError, match=r"local repository are damaged \(other-1\.jar\)"):
        ensure_jars()
    assert not cached_jars().exists()


def test_unwritable_cache_raises(maven, tmp_path, monkeypatch):
    """A cache that cannot be created is an error with the variable that moves it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("PULSAR_EXT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(BrokerStartError, match="set PULSAR_EXT_CACHE"):
        ensure_jars()


# -- the committed list ----------------------------------------------------------------------------------------------


@pytest.fixture
def listed(maven, monkeypatch, tmp_path):
    """Return the directory from which Maven copies jars; the committed list has their sums."""
    jars, lists = tmp_path / "jars", tmp_path / "lists"
    lists.mkdir()
    with zipfile.ZipFile(jars / "other-1-x86.jar", "w") as jar:
        jar.writestr("content", "classifier")
    places = {"pulsar-broker-4.98.7.jar": "org/apache/pulsar/pulsar-broker/4.98.7"}
    text = "".join(
        f"{sum_of(path)}  {places.get(path.name, 'net/other/1')}/{path.name}\n" for path in sorted(jars.glob("*.jar"))
    )
    (lists / f"pulsar-{UNLISTED}.sha256").write_text(text)
    monkeypatch.setattr(harness_jars, "_LISTS", lists)
    return jars


@pytest.mark.parametrize("version", [PULSAR_VERSION, *OTHER_VERSIONS])
def test_supported_version_has_a_list(version):
    """The list has the broker and its client, each with a sum of 64 digits, in one order, and no file name twice."""
    sums = committed_sums(version)
    for name in ("pulsar-broker", "pulsar-client-original"):
        assert f"org/apache/pulsar/{name}/{version}/{name}-{version}.jar" in sums
    assert len(sums) > 250
    assert all(len(digest) == 64 and int(digest, 16) for digest in sums.values())
    assert list(sums) == sorted(sums)
    assert len({Path(path).name for path in sums}) == len(sums)


def test_listed_jars_are_valid(listed, maven):
    """Jars with the listed sums are valid."""
    ensure_jars()
    assert find_damage() is None
    assert maven.read_text().count("x") == 1


def test_listed_jars_are_copied_one_by_one(listed, maven):
    """Maven gets the coordinates of each listed jar, and no dependency whose project file it would read."""
    ensure_jars()
    pom = maven.with_suffix(".pom").read_text()
    coordinates = "<groupId>net</groupId><artifactId>other</artifactId><version>1</version>"
    assert f"<artifactItem>{coordinates}<classifier></classifier></artifactItem>" in pom
    assert f"<artifactItem>{coordinates}<classifier>x86</classifier></artifactItem>" in pom
    assert "<groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId><version>4.98.7<" in pom
    assert "<dependency>" not in pom


def test_jar_with_another_sum_raises(listed):
    """A jar with another content is an error with its name, both sums and what to do."""
    expected = sum_of(listed / "other-1.jar")
    with zipfile.ZipFile(listed / "other-1.jar", "a") as jar:
        jar.writestr("more", "malice")
    with pytest.raises(BrokerStartError, match=r"Delete these files in Maven's local repository") as caught:
        ensure_jars()
    found = sum_of(listed / "other-1.jar")
    assert f"other-1.jar differs (found: SHA-256 {found}, expected: {expected})" in str(caught.value)
    assert not cached_jars().exists()


def test_missing_listed_jar_raises(listed):
    """A jar that Maven did not copy is an error with its name and the expected sum."""
    expected = sum_of(listed / "other-1.jar")
    (listed / "other-1.jar").unlink()
    with pytest.raises(BrokerStartError, match=rf"other-1\.jar is missing \(expected: SHA-256 {expected}\)"):
        ensure_jars()


def test_unlisted_jar_raises(listed):
    """A jar that is not in the list is an error, because every jar is on the class path."""
    (listed / "extra.jar").write_bytes(b"x")
    with pytest.raises(BrokerStartError, match=r"extra\.jar is unexpected \(found: SHA-256 [0-9a-f]{64}\)"):
        ensure_jars()


def test_record_does_not_override_the_list(listed, maven):
    """A jar that was replaced together with its recorded sum is detected and fetched again."""
    directory = ensure_jars()
    good = sum_of(directory / "other-1.jar")
    path, record = directory / "other-1.jar", directory / "jars.sha256"
    path.write_bytes(b"other")
    record.write_text(record.read_text().replace(good, sum_of(path)))

    assert f"expected: {good}" in find_damage()
    assert sum_of(ensure_jars() / "other-1.jar") == good
    assert maven.read_text().count("x") == 2


def test_listed_jars_without_a_record_are_not_refetched(listed, maven, bin_dir):
    """Jars with the listed sums are used without Maven, although their record is damaged."""
    directory = ensure_jars()
    damage_to_the_record(directory)
    (bin_dir / "mvn").unlink()
    assert ensure_jars() == directory
    assert find_damage() is None


@pytest.mark.parametrize("version", ["", "../4.2.4", "4.2.4 ", "latest", "4.2.4</version>", "4..2"])
def test_invalid_version_raises(bin_dir, version):
    """An invalid version raises, and so becomes part of no path and no project file."""
    with pytest.raises(InvalidUse, match="is not a version of Pulsar"):
        ensure_jars(version=version)


def test_progress_is_reported_every_ten_seconds():
    """A line of progress is reported every ten seconds, with the total, and one at the end."""
    reported, now = [], iter(range(10_000))
    lines = [f"[INFO] Downloaded from x: a{at}.jar" if at % 3 else f"[INFO] Copying a{at}.jar" for at in range(30)]
    assert follow(reported.append, 327, lines, clock=lambda: next(now)) == lines
    assert reported[-1] == "jars: 20 downloaded, 10 of 327 copied"
    assert len(reported) <= 4
    assert follow(reported.append, None, [], clock=lambda: 0.0) == []
