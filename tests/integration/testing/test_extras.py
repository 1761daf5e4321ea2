"""Each extra alone: the wheel with one extra in a virtual environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMMANDS = ["", "broker", "doctor", "ids", "look", "ranges", "reproduce", "skip", "spark"]
pytestmark = [
    pytest.mark.on_demand,
    pytest.mark.standalone_only("is about installing"),
    pytest.mark.skipif(shutil.which("uv") is None, reason="uv makes the environments: pip install uv"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    run("uv", "build", "--wheel", "--quiet", "--out-dir", str(directory), str(ROOT))
    return next(directory.glob("*.whl"))


@pytest.fixture
def installed(wheel, tmp_path):
    """Install the wheel with extras, and return the directory of the environment's programs."""

    def install(extras, *more):
        run("uv", "venv", "--quiet", "--python", sys.executable, str(tmp_path / "env"))
        programs = tmp_path / "env" / "bin"
        wanted = f"pulsar-ext[{extras}] @ {wheel.as_uri()}"
        run("uv", "pip", "install", "--quiet", "--python", str(programs / "python"), wanted, *more)
        return programs

    return install


def run(*command, expected=0, cwd=None):
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600, cwd=cwd)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + done.stderr


def assert_names_extra(text, extra):
    """Assert that the last line names the extra, without a stack trace."""
    assert text.strip().endswith(f"pip install 'pulsar-ext[{extra}]'"), text
    assert "Traceback" not in text


@pytest.mark.parametrize("extras", ["cli", "cli,spark"])
def test_every_command_runs_with_its_extra_only(installed, extras):
    """With `cli`, and with `spark` as in its guide, each command prints its help, and `ids` and `ranges` work."""
    programs = installed(extras)
    for command in COMMANDS:
        run(str(programs / "pulsar-ext"), *command.split(), "--help")
    assert run(str(programs / "pulsar-ext"), "ranges", "slot", "key1") == "293 key1\n".rjust(11)
    run(str(programs / "pulsar-ext"), "reproduce", "--list")
    run(str(programs / "pulsar-ext"), "broker", "profiles")


def test_commands_name_the_missing_extra(installed):
    """With `cli` only, commands for brokers, Spark and pictures end with a line that names the extra."""
    command = str(installed("cli") / "pulsar-ext")
    for arguments in ("broker run", "broker fetch", "spark pipeline"):
        assert_names_extra(run(command, *arguments.split(), expected=1), "testing")
    assert_names_extra(run(command, "spark", "audit", "orders", expected=1), "spark")
    assert_names_extra(run(command, "ranges", "plan", "orders", "2", "--png", "x.png", expected=1), "bench")


@pytest.mark.parametrize(
    ("extra", "module"),
    [
        ("cli", "cli"),
        ("otel", "otel"),
        ("faststream", "faststream"),
        ("spark", "spark.jobs"),
        ("testing", "testing.spark_cluster"),
        ("testing", "testing.fixtures"),
    ],
)
def test_module_needs_only_its_extra(installed, extra, module):
    """The module of an extra can be imported with that extra only."""
    run(str(installed(extra) / "python"), "-c", f"import pulsar_ext.{module}")


def test_avro_and_pictures_need_only_their_extras(installed, tmp_path):
    """Avro needs `schemas` only, and a PNG `bench` only."""
    programs = installed("schemas,bench")
    program = tmp_path / "program.py"
    program.write_text(
        "import dataclasses, pathlib\n"
        "import pulsar_ext as pulsar\n"
        "from pulsar_ext.key_shared.plan import draw_histogram\n"
        "@dataclasses.dataclass\n"
        "class Order:\n"
        "    number: int\n"
        "pulsar.schema.AvroSchema(Order).encode(Order(1))\n"
        "draw_histogram({1: 1.0}, [pulsar.KeyHashRanges.full()], 't', 'messages', pathlib.Path('p.png'))\n"
    )
    run(str(programs / "python"), str(program), cwd=tmp_path)


def test_modules_without_extras_name_the_missing_one(installed, tmp_path):
    """Without extras imports raise `MissingExtra` in one line, and so does a fixture of the plugin."""
    programs = installed("", "pytest")
    for extra, program in {
        "otel": "import pulsar_ext.otel",
        "faststream": "import pulsar_ext.faststream",
        "spark": "from pulsar_ext.spark import PulsarDataSource",
        "testing": "from pulsar_ext.testing import start_broker",
        "schemas": "import pulsar_ext.schema, dataclasses as d\n"
        "pulsar_ext.schema.AvroSchema(d.make_dataclass('A', [('x', int)]))",
    }.items():
        text = run(str(programs / "python"), "-c", program, expected=1)
        assert text.strip().splitlines()[-1].startswith("pulsar_ext.errors.MissingExtra: ")
        assert text.strip().endswith(f"pip install 'pulsar-ext[{extra}]'")
    (tmp_path / "test_one.py").write_text("def test_one(pulsar_topic): pass\n")
    text = run(str(programs / "python"), "-m", "pytest", "-q", str(tmp_path / "test_one.py"), expected=1)
    assert "pip install 'pulsar-ext[testing]'" in text
    assert "Traceback" not in text
    assert_names_extra(run(str(programs / "pulsar-ext"), "ids", expected=1), "cli")
