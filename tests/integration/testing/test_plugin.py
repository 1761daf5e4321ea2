"""The pytest plugin: whole pytest runs of small projects in separate processes."""

import re

import pytest

from pulsar_ext.testing.backend import process_problem

needs_process = pytest.mark.skipif(process_problem() is not None, reason=f"no broker process here: {process_problem()}")

INI = "[pytest]\nfilterwarnings = error\n"

STARTED = re.compile(r"^Pulsar \S+ profile (\S+), back end \S+: (pulsar://\S+) and (http://\S+)$", re.MULTILINE)


@pytest.fixture
def project(pytester, monkeypatch):
    """Return an empty project in which every warning is an error."""
    for name in ("URL", "ADMIN_URL", "PROFILE", "BACKEND", "TOKEN", "PULSAR_VERSION"):
        monkeypatch.delenv(f"PULSAR_EXT_{name}", raising=False)
    pytester.makeini(INI)
    return pytester


def started(result):
    """Return profile and URLs of each broker that a run started."""
    return STARTED.findall(result.stdout.str())


def test_unused_plugin_loads_nothing(project):
    """A run without the fixtures starts no broker, and loads neither testcontainers nor Docker."""
    project.makepyfile("""
        import sys

        def test_nothing():
            assert not {"testcontainers", "docker", "pulsar_ext.testing.backend"} & set(sys.modules)
    """)
    for options in ([], ["-n", "2"]):
        result = project.runpytest_subprocess(*options)
        result.assert_outcomes(passed=1)
        assert started(result) == []


def test_fixtures_are_documented(project):
    """Each public fixture is listed by `pytest --fixtures` with its docstring."""
    result = project.runpytest_subprocess("--fixtures")
    ours = result.stdout.str().partition("fixtures defined from pulsar_ext")[2].partition("fixtures defined from")[0]
    for name in ("broker", "admin", "client", "namespace", "topic", "fault_proxy"):
        assert f"pulsar_{name}" in ours
    assert "no docstring available" not in ours


@needs_process
def test_tests_share_a_broker_and_have_namespaces(project):
    """All tests share one broker, each has its namespace, and no namespace or tenant outlives the run."""
    project.makepyfile("""
        import pytest

        seen = set()

        @pytest.mark.parametrize("number", range(3))
        def test_round_trip(pulsar_client, pulsar_topic, pulsar_namespace, pulsar_admin, number):
            assert pulsar_namespace in pulsar_topic
            assert pulsar_namespace not in seen
            consumer = pulsar_client.subscribe(pulsar_topic, "s")
            pulsar_client.create_producer(pulsar_topic).send(b"x")
            assert consumer.receive(10_000).data() == b"x"
            # Namespaces of earlier tests are gone, although their clients were connected.
            present = set(pulsar_admin.namespaces(pulsar_namespace.partition("/")[0]))
            assert present == {pulsar_namespace}
            seen.add(pulsar_namespace)

        def test_partitions(pulsar_topic_factory, pulsar_client):
            topic = pulsar_topic_factory("orders", partitions=3)
            assert len(pulsar_client.get_topic_partitions(topic)) == 3
    """)
    result = project.runpytest_subprocess("--pulsar-backend=process")
    result.assert_outcomes(passed=4)
    assert [profile for profile, *_ in started(result)] == ["plain"]
    result.stdout.fnmatch_lines(["back end process: requested; PULSAR_EXT_BACKEND=docker *"])


@needs_process
def test_workers_share_brokers(project):
    """Under xdist all workers share one broker per profile, and have their own tenants."""
    project.makepyfile("""
        import pytest

        @pytest.mark.parametrize("number", range(6))
        @pytest.mark.parametrize("profile", ["plain", "dedup"])
        def test_round_trip(
            pulsar_broker_factory, pulsar_topic_factory, pulsar_client_factory, worker_id, profile, number
        ):
            broker = pulsar_broker_factory(profile)
            topic = pulsar_topic_factory(broker=broker)
            assert worker_id in topic
            pulsar_client_factory(broker).create_producer(topic).send(b"x")
            assert broker.log_offset() > 0
            assert broker.is_running()
            with pytest.raises(ValueError, match="shared"):
                broker.kill()
    """)
    result = project.runpytest_subprocess("-n", "2", "--pulsar-backend=process", "-v")
    result.assert_outcomes(passed=12)
    assert sorted(profile for profile, *_ in started(result)) == ["dedup", "plain"]
    result.stdout.fnmatch_lines_random(["*gw0*PASSED*", "*gw1*PASSED*"])


@needs_process
@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_failing_test_shows_the_brokers_log(project, workers):
    """A failing test shows the broker's log since its start, and no other test's."""
    project.makepyfile("""
        def use(client, topic):
            client.create_producer(topic)

        def test_before(pulsar_client, pulsar_topic_factory):
            use(pulsar_client, pulsar_topic_factory("before"))

        def test_failing(pulsar_client, pulsar_topic_factory):
            use(pulsar_client, pulsar_topic_factory("failing"))
            assert False

        def test_without():
            assert False
    """)
    result = project.runpytest_subprocess("--pulsar-backend=process", *workers)
    result.assert_outcomes(passed=1, failed=2)
    text = result.stdout.str()
    assert len(re.findall("-+ Pulsar broker log, profile plain -+", text)) == 1
    assert "Created topic persistent" in text
    assert "/failing-" in text
    assert "/before-" not in text
    quiet = project.runpytest_subprocess(
        "--pulsar-backend=process", "--pulsar-broker-log=none", "-k", "failing", *workers
    )
    quiet.stdout.no_fnmatch_line("*Pulsar broker log*")


@needs_process
def test_existing_broker_is_used(project, monkeypatch, pulsar_own_broker):
    """With `--pulsar-url` an existing broker is used, cleaned up, and left running."""
    broker = pulsar_own_broker("auth")
    project.makepyfile(f"""
        def test_there(pulsar_broker, pulsar_client, pulsar_topic):
            assert pulsar_broker.service_url == {broker.service_url!r}
            pulsar_client.create_producer(pulsar_topic).send(b"x")
    """)
    monkeypatch.setenv("PULSAR_TOKEN", broker.token)
    for workers in ([], ["-n", "2"]):
        result = project.runpytest_subprocess(
            f"--pulsar-url={broker.service_url}", f"--pulsar-admin-url={broker.admin_url}", *workers
        )
        result.assert_outcomes(passed=1)
        assert started(result) == []
        assert broker.token not in result.stdout.str()
    assert broker.is_running()

    result = project.runpytest_subprocess(
        f"--pulsar-url={broker.service_url}", f"--pulsar-admin-url={broker.admin_url}", "--pulsar-version=0.0.1"
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"version 0.0.1 was requested, but * is Pulsar {broker.version}: run without *"])


def test_unreachable_broker_is_an_error(project):
    """An address without a broker is an error without a stack trace."""
    project.makepyfile("def test_there(pulsar_client): pass")
    result = project.runpytest_subprocess("--pulsar-url=pulsar://localhost:1", "--pulsar-admin-url=http://localhost:1")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["no broker answers for * at http://localhost:1; check --pulsar-url*"])
    assert "Traceback" not in result.stdout.str()
    assert "readiness.py" not in result.stdout.str()


def test_bad_options_are_usage_errors(project):
    """An unknown profile or back end ends the run before any test, with the valid names."""
    project.makepyfile("def test_nothing(): pass")
    result = project.runpytest_subprocess("--pulsar-profile=nope")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unknown broker profile 'nope'; choose one of: plain, dedup,*"])
    result = project.runpytest_subprocess("--pulsar-version=latest")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'latest' is not a version of Pulsar; pass one such as *"])
    result = project.runpytest_subprocess("--pulsar-backend=nope")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_missing_back_ends_are_reported(project, monkeypatch):
    """Without an engine and without Java, the test's error names both and what to install."""
    project.makepyfile("def test_there(pulsar_broker): pass")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{project.path}/none.sock")
    monkeypatch.setenv("JAVA_HOME", str(project.path))
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["no back end for a broker is available*", "Docker: *", "Process: *install Java*"])


@needs_process
def test_profile_and_settings_are_used(project, monkeypatch):
    """The profile of the environment and a test's own profile set the broker's settings."""
    project.makepyfile("""
        from pulsar_ext.testing import Profile

        def test_default(pulsar_broker):
            assert pulsar_broker.profile.name == "dedup"

        def test_own(pulsar_own_broker):
            broker = pulsar_own_broker(Profile("mine", "", {"maxMessageSize": "2000"}), settings={"numIOThreads": 3})
            assert "maxMessageSize=2000" in broker.log_text()
            assert "numIOThreads=3" in broker.log_text()
    """)
    monkeypatch.setenv("PULSAR_EXT_PROFILE", "dedup")
    monkeypatch.setenv("PULSAR_EXT_BACKEND", "process")
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=2)
