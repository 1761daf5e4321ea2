"""Listeners of a broker on a Docker network, and programs in containers."""

import pytest
from docker.errors import NotFound

from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing.container import ContainerProgram, check_alias, check_settings, listener_settings


def test_each_listener_advertises_its_address():
    """Clients of the network get the alias, those of the host its port, and the broker itself uses the network."""
    settings = listener_settings("pulsar", 6650, 40_123, tls=False)
    assert settings == {
        "advertisedListeners": "network:pulsar://pulsar:6650,host:pulsar://localhost:40123",
        "internalListenerName": "network",
        "bindAddresses": "host:pulsar://0.0.0.0:6651",
    }
    secure = listener_settings("pulsar", 6650, 40_123, tls=True)
    assert "pulsar://" not in "".join(secure.values())


@pytest.mark.parametrize("alias", ["pulsar", "pulsar-1", "a", "broker.test", "x1", "pulsar-ext-0123456789ab"])
def test_host_names_are_valid_aliases(alias):
    """Host names are valid aliases."""
    assert check_alias(alias) == alias


@pytest.mark.parametrize("alias", ["", "my_pulsar", "-a", "a-", "a..b", "10.0.0.1", "a:1", "a,b", "ü"])
def test_other_names_are_not_valid_aliases(alias):
    """Any other alias raises an error that names it."""
    with pytest.raises(InvalidUse, match=r"network alias .* is not a host name"):
        check_alias(alias)


def test_listener_settings_of_the_caller_raise():
    """Settings of listeners raise, because the network has its own; other settings are valid."""
    check_settings({"maxMessageSize": 1})
    with pytest.raises(InvalidUse, match="sets bindAddresses: omit"):
        check_settings({"bindAddresses": "x"})


class EngineContainer:
    """Container of an engine; `removed` ones are not found."""

    def __init__(self):
        self.status, self.removed, self.ended = "running", False, []
        self.attrs = {"State": {"Pid": 7, "ExitCode": 3}}

    def reload(self):
        if self.removed:
            raise NotFound("no such container")

    def logs(self, since):
        self.reload()
        return f"from {since}".encode()

    def kill(self):
        self.status = "exited"

    def stop(self, timeout):
        self.ended.append(timeout)
        self.status = "exited"

    def wait(self):
        self.ended.append("waited")


def test_container_program_follows_its_container():
    """A program has a process id while it runs and an exit status afterwards, and is ended once."""
    program = ContainerProgram()
    assert (program.is_running(), program.pid, program.log_text(), program.finish(0)) == (False, None, "", None)
    program.container = engine = EngineContainer()
    assert (program.is_running(), program.pid, program.finish(0)) == (True, 7, None)
    assert (program.log_text(), program.log_text(2_000_000_000)) == ("from None", "from 2.0")
    program.halt()
    program.halt()
    program.kill()
    assert (len(engine.ended), program.pid, program.finish(1)) == (1, None, 3)


def test_removed_container_has_no_log():
    """A removed container does not run, and its log is empty."""
    program = ContainerProgram()
    program.container = EngineContainer()
    program.container.removed = True
    assert (program.is_running(), program.pid, program.log_text()) == (False, None, "")
