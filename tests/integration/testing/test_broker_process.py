"""The broker as a child process: start, kill, restart, kept data, and end with its parent."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pulsar
import pytest

from pulsar_ext.errors import BrokerStartError, InvalidUse
from pulsar_ext.testing import PROFILES, PulsarProcess
from pulsar_ext.testing.access import Access
from pulsar_ext.testing.backend import process_problem
from pulsar_ext.testing.ports import free_port
from pulsar_ext.testing.readiness import default_namespace_exists

pytestmark = pytest.mark.skipif(process_problem() is not None, reason=f"no broker process here: {process_problem()}")

ORPHANED = """
import os, signal, sys
from pulsar_ext.testing import PulsarProcess
broker = PulsarProcess().start()
print(broker.pid, broker.data_dir, flush=True)
if sys.argv[1] == "down":
    broker.kill()
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextlib.contextmanager
def client_of(broker):
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(broker.service_url, logger=quiet, **broker.client_options(pulsar))
    try:
        yield client
    finally:
        client.close()


def _oauth2_secrets(access):
    if access.oauth2 is None:
        return []
    return [json.loads(Path(json.loads(access.oauth2)["private_key"]).read_text())["client_secret"]]


def send(broker, topic, *contents):
    with client_of(broker) as client:
        producer = client.create_producer(topic)
        return [producer.send(content) for content in contents]


def read(broker, topic, count):
    with client_of(broker) as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        return [reader.read_next(20_000).data() for _ in range(count)]


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def group(pid):
    """Return the live processes of a process group."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_starts_and_leaves_nothing(name):
    """Each profile delivers a message, logs no secret, and leaves no process and no file."""
    with PulsarProcess(name) as broker:
        pid, home, access = broker.pid, broker.data_dir, broker.access
        secrets = [access.token, *(access.basic or ())[1:], *_oauth2_secrets(access)]
        send(broker, "t", b"x")
        assert read(broker, "t", 1) == [b"x"]
        assert access.kind == PROFILES[name].kind
        assert broker.service_url.startswith("pulsar+ssl:") == PROFILES[name].tls
        shown = broker.log_text() + repr(broker) + broker.describe() + repr(access)
        assert [secret for secret in secrets if secret is not None and secret in shown] == []
        assert name in broker.describe()
    assert not broker.is_running()
    assert group(pid) == []
    assert not home.exists()


@pytest.mark.parametrize("name", [name for name, profile in PROFILES.items() if profile.kind])
def test_authentication_is_on(name, pulsar_broker_factory):
    """A client without credentials is rejected on both ports, even if it trusts the certificate's authority."""
    broker = pulsar_broker_factory(name)
    client = pulsar.Client(
        broker.service_url,
        operation_timeout_seconds=2,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        **broker.access.tls_options,
    )
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("t")
    client.close()
    anonymous = Access(trust_certs=broker.access.trust_certs)
    assert default_namespace_exists(broker.admin_url, broker.access)
    assert not default_namespace_exists(broker.admin_url, anonymous)


def test_kill_and_restart_keep_data_and_urls():
    """After a SIGKILL and a restart the data and the URLs are unchanged, also after a normal restart."""
    with PulsarProcess() as broker:
        urls, pid = (broker.service_url, broker.admin_url), broker.pid
        send(broker, "t", *(b"%d" % number for number in range(100)))
        broker.kill()
        assert not broker.is_running()
        assert group(pid) == []
        broker.restart()
        assert (broker.service_url, broker.admin_url) == urls
        assert read(broker, "t", 100) == [b"%d" % number for number in range(100)]
        broker.restart()
        assert read(broker, "t", 1) == [b"0"]


def test_data_directory_is_kept(tmp_path):
    """A data directory keeps data, ports and secret for the next run, and admits one broker at a time."""
    with PulsarProcess("auth", data_dir=tmp_path) as first:
        urls, token = (first.service_url, first.admin_url), first.token
        send(first, "t", b"kept")
        with pytest.raises(BrokerStartError, match="in use by another broker"):
            PulsarProcess(data_dir=tmp_path).start()
    with PulsarProcess("auth", data_dir=tmp_path) as second:
        assert ((second.service_url, second.admin_url), second.token) == (urls, token)
        assert read(second, "t", 1) == [b"kept"]
    assert (tmp_path / "broker.log").is_file()


def test_unpacked_libraries_are_removed_with_the_broker(tmp_path):
    """The libraries that Java unpacks are in the broker's directory, and are removed also after a kill."""
    with PulsarProcess(data_dir=tmp_path) as broker:
        assert list((tmp_path / "tmp").glob("librocksdb*"))
        broker.kill()
        broker.restart()
        assert len(list((tmp_path / "tmp").glob("librocksdb*"))) == 1
    assert not (tmp_path / "tmp").exists()


@pytest.mark.parametrize("name", ["tmp/mine", "standalone.conf", "ca.pem"])
def test_directory_with_other_files_is_rejected(tmp_path, name):
    """A data directory with files that are not a broker's is rejected and stays unchanged."""
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("precious")
    with pytest.raises(BrokerStartError, match="files that are not a broker's"):
        PulsarProcess("tls", data_dir=tmp_path).start()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "precious"


def test_invalid_path_is_rejected(tmp_path, monkeypatch):
    """A blank in the path of the data, given or temporary, is rejected before Java starts, and nothing remains."""
    with pytest.raises(BrokerStartError, match="because of the character ' ': use another"):
        PulsarProcess(data_dir=tmp_path / "a b").start()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "c d"))
    (tmp_path / "c d").mkdir()
    with pytest.raises(BrokerStartError, match="because of the character ' ': set TMPDIR"):
        PulsarProcess().start()
    assert not list((tmp_path / "c d").iterdir())
    assert not (tmp_path / "a b").exists()


@pytest.mark.skipif(sys.getfilesystemencoding() != "utf-8", reason="Java finds no such file here")
def test_unicode_path_is_supported(tmp_path):
    """The files that the settings name are found in a directory with a Unicode name."""
    with PulsarProcess("tls", data_dir=tmp_path / "é中") as broker:
        send(broker, "t", b"0")


def test_damaged_state_is_rejected(tmp_path):
    """A data directory whose state is damaged or of another version is rejected before Java starts."""
    (tmp_path / "pulsar-ext.json").write_text("{")
    with pytest.raises(BrokerStartError, match="is damaged"):
        PulsarProcess(data_dir=tmp_path).start()
    (tmp_path / "pulsar-ext.json").write_text('{"version": "3.0.0"}')
    with pytest.raises(BrokerStartError, match=r"the data of Pulsar 3\.0\.0"):
        PulsarProcess(data_dir=tmp_path).start()


@pytest.mark.parametrize("which", ["broker_port", "admin_port"])
def test_port_in_use_is_rejected(which):
    """A given port that is in use is an error that names it, and nothing remains."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        broker = PulsarProcess(**{which: port})
        with pytest.raises(BrokerStartError, match=f"port {port} for the .* is in use"):
            broker.start()
    assert broker.data_dir is None


@pytest.mark.parametrize("which", ["broker_port", "admin_port"])
def test_port_taken_during_the_start(which, monkeypatch):
    """A given port taken after the check ends the start; a chosen one is replaced."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(f"{PulsarProcess.__module__}.is_free", lambda _: True)
        with pytest.raises(BrokerStartError, match=f"another program took port .*{port}"):
            PulsarProcess(**{which: port}).start()
        chosen = [free_port(), free_port()]
        chosen.insert(which == "admin_port", port)
        monkeypatch.setattr(
            f"{PulsarProcess.__module__}.free_port", lambda taken: chosen.pop(0) if chosen else free_port(taken)
        )
        with PulsarProcess() as broker:
            assert default_namespace_exists(broker.admin_url, broker.access)
            assert str(port) not in f"{broker.service_url} {broker.admin_url}"


def test_bad_arguments_raise_before_the_start():
    """An unknown profile, a bad setting and an invalid port raise before the start."""
    with pytest.raises(InvalidUse, match="choose one of"):
        PulsarProcess("nope")
    with pytest.raises(InvalidUse, match="too small"):
        PulsarProcess(settings={"nettyMaxFrameSizeBytes": 1})
    with pytest.raises(InvalidUse, match="got 99999"):
        PulsarProcess(broker_port=99_999).start()


def test_failed_start_shows_the_log_and_leaves_nothing():
    """A broker that cannot start raises an error with the end of its log, and leaves no process and no directory."""
    broker = PulsarProcess(settings={"brokerServicePort": "nonsense"})
    with pytest.raises(BrokerStartError, match="exited during its start") as caught:
        broker.start()
    assert "nonsense" in caught.value.log_tail
    assert not broker.is_running()
    assert broker.data_dir is None


def guards_of(home):
    """Return the processes with the directory among their arguments."""
    return [one for one in psutil.process_iter(["cmdline"]) if home in (one.info["cmdline"] or ())]


@pytest.mark.parametrize("broker", ["up", "down"])
def test_broker_ends_with_a_killed_parent(broker):
    """After a SIGKILL of the parent, the broker, running or not, its guards and its data directory are removed."""
    command = [sys.executable, "-c", ORPHANED, broker]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    pid, home = run.stdout.split()
    wait_until(lambda: not group(int(pid)) and not Path(home).exists() and not guards_of(home))


def test_log_since_an_offset():
    """The log since an offset has only lines after it."""
    with PulsarProcess() as broker:
        offset = broker.log_offset()
        send(broker, "only-after-the-offset", b"x")
        assert "only-after-the-offset" in broker.log_text(offset)
        assert "only-after-the-offset" not in broker.log_text()[:offset]
        assert len(broker.log_tail(3).splitlines()) == 3


@pytest.mark.core(slow="a broker of its own starts")
def test_command_line_runs_and_ends_cleanly():
    """`pulsar-ext broker run` starts a working broker, and SIGINT ends it with status 0 and no stack trace."""
    command = [shutil.which("pulsar-ext") or "pulsar-ext", "broker", "run", "--backend", "process", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        facts = json.loads(run.stdout.readline())
        with contextlib.closing(
            pulsar.Client(facts["service_url"], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        ) as client:
            client.create_producer("t").send(b"x")
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 0
    assert "Traceback" not in errors
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(facts["service_url"].rpartition(":")[2]))) != 0
