"""Java programs of `java/` that the tests compare with; compiled once, and started with a class archive.

Their client is that of the default version, whatever the broker's is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from pulsar_ext.testing import PULSAR_VERSION
from pulsar_ext.testing.java_program import Java

PROGRAMS = Path(__file__).parent / "java"
SECONDS = 120


def run_java(program, *arguments, lines=()):
    """Run a program to its end, and return the lines that it prints, including Java's log.

    Args:
        program: the class name.
        *arguments: its arguments.
        lines: its standard input.
    """
    java = Java.find(version=PULSAR_VERSION)
    quick = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
    if java.archive is not None:
        quick.append(f"-XX:SharedArchiveFile={java.archive}")
    command = [java.program, *quick, "-cp", f"{java.jars}/*{os.pathsep}{java_classes()}", program, *arguments]
    done = subprocess.run(
        list(map(str, command)),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout.splitlines()


@cache
def java_classes():
    """Return the directory of the compiled programs, which is shared by the workers of a run."""
    java, sources = Java.find(version=PULSAR_VERSION), sorted(PROGRAMS.glob("*.java"))
    state = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    classes = java.jars / f"tests-{state}"
    if not classes.is_dir():
        made = Path(tempfile.mkdtemp(dir=classes.parent))
        # The `javac` launcher needs a JDK; the compiler module is in every Java that the tests run on.
        compiler = [java.program, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-source", "17", "-target", "17"]
        jars = os.pathsep.join(map(str, java.jars.glob("*.jar")))
        command = [*compiler, "-nowarn", "-proc:none", "-cp", jars, "-d", made, *sources]
        subprocess.run(list(map(str, command)), check=True, timeout=SECONDS)
        try:
            made.rename(classes)
        except OSError:  # another worker was faster
            shutil.rmtree(made)
            if not classes.is_dir():
                raise
    return classes
