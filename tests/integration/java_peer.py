"""The Java programs of `java/`, which the tests compare with: compiled once, and then quick to start."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from pulsar_ext.testing.class_archive import find_archive
from pulsar_ext.testing.jars import ensure_jars, find_java

PROGRAMS = Path(__file__).parent / "java"
SECONDS = 120


def run_java(program, *arguments, lines=(), options=()):
    """Run a program to its end, and give the lines that it prints; what Java logs is among them.

    Args:
        program: its class.
        *arguments: what it is given.
        lines: what it reads.
        options: more options of Java.
    """
    java, jars = find_java(), ensure_jars()
    archive = find_archive(java, jars)
    quick = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
    if archive is not None:
        quick.append(f"-XX:SharedArchiveFile={archive}")
    command = [java, *quick, *options, "-cp", f"{jars}/*{os.pathsep}{java_classes()}", program, *arguments]
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
    """Give the directory of the compiled programs, which the workers of a run share."""
    sources = sorted(PROGRAMS.glob("*.java"))
    state = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    classes = ensure_jars() / f"tests-{state}"
    if not classes.is_dir():
        made = Path(tempfile.mkdtemp(dir=classes.parent))
        # The compiler's own launcher comes with a JDK only, the compiler with every Java that the harness runs on.
        compiler = [find_java(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-source", "17", "-target", "17"]
        jars = os.pathsep.join(map(str, ensure_jars().glob("*.jar")))
        command = [*compiler, "-nowarn", "-proc:none", "-cp", jars, "-d", made, *sources]
        subprocess.run(list(map(str, command)), check=True, timeout=SECONDS)
        try:
            made.rename(classes)
        except OSError:  # another worker was quicker
            if not classes.is_dir():
                raise
    return classes
