"""Steps shared by the tests of the doctor: diagnosing, and applying remedies."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys

import httpx2
from commands import call_command

from pulsar_ext import DiagnosisLimits
from pulsar_ext.ids.topic_name import TopicName

SOON = DiagnosisLimits(hole_distance=3, patience_seconds=0.2, pause_seconds=0.5)
"""Small limits, so that a test need not wait long or send much."""


def findings_of_kind(client, target, kind, **options):
    """Diagnose, and return the findings of a kind."""
    diagnosis = client.diagnose(target, **{"limits": SOON, **options})
    return [one for one in diagnosis.findings if one.kind == kind]


def environment_of(broker):
    """Return the environment of a command that connects to the broker."""
    access = broker.access
    found = {"PULSAR_ADMIN_URL": broker.admin_url, "PULSAR_URL": broker.service_url}
    if access.trust_certs is not None:
        found["PULSAR_EXT_TRUST_CERTS"] = access.trust_certs
    if access.certificate is not None:
        found["PULSAR_EXT_CERTIFICATE"], found["PULSAR_EXT_KEY"] = access.certificate
    return {**os.environ, **found}


def call_rest(broker, method, path, **options):
    """Call the admin REST API where `PulsarAdmin` has no method."""
    where = {"base_url": f"{broker.admin_url}/admin/v2/", "follow_redirects": True}
    with httpx2.Client(**where, **broker.access.http_options()) as client:
        client.request(method, path, **options).raise_for_status()


def pulsar_ext(broker, command):
    """Run a `pulsar-ext` command line against the broker; return its status, output and error output."""
    name, *arguments = shlex.split(command)
    assert name == "pulsar-ext"
    return call_command(*arguments, environment=environment_of(broker))


@contextlib.contextmanager
def watching(broker, command, **streams):
    """Run a command line with `--watch` against the broker, and interrupt it at the end of the block."""
    _, *arguments = shlex.split(command)
    with subprocess.Popen(
        [sys.executable, "-u", "-c", "from pulsar_ext.cli import main; main()", *arguments, "--json", "--watch"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment_of(broker),
        **streams,
    ) as running:
        try:
            yield running
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(60)


def mend(broker, finding, nth=0):
    """Apply a remedy: its dry run, which changes nothing, and then the command itself."""
    remedy = [one for one in finding.remedies if one.command][nth]
    if remedy.dry_run:
        status, printed, error = pulsar_ext(broker, f"{remedy.dry_run} --json")
        assert (status, json.loads(printed)["dry_run"]) == (0, True), error
    status, _, error = pulsar_ext(broker, remedy.command)
    assert status == 0, error


def namespace_of(topic):
    """Return the namespace of a topic."""
    return TopicName.parse(topic).namespace_name
