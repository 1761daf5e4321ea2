"""The native core under AddressSanitizer and UndefinedBehaviorSanitizer, and over ten million messages: no leak.

    python tests/faults/native_core.py [--messages N]

Builds the extension with both sanitizers into a copy of the package, and runs the core's tests with it. Then reads the
fields and the id of N messages on two threads, each of which frees what the other made, batches N messages and reports
their outcomes, and compares the process's memory at a tenth and at the end of each. Needs g++; no broker. Exits with 1
after any finding.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_TESTS = (
    *("tests/unit/native/test_core.py", "tests/unit/native/test_sending.py", "tests/unit/ids"),
    "tests/unit/spark/test_blocks.py",
)
_PAYLOAD = b"\x00\x00\x00\x0d\x0a\x06\x0a\x01p\x12\x01v\x12\x01k\x18\x04data"
_BATCH = 500
_GROWTH_BYTES = 4 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=10_000_000, help="messages that are read (10,000,000)")
    arguments = parser.parse_args()
    failed = _sanitized()
    for what, growth in (("read", _growth(arguments.messages)), ("sent", _growth_of_sends(arguments.messages))):
        print(f"{arguments.messages:,} messages {what}: {growth / 1024:,.0f} KiB more than at a tenth of them")
        failed |= growth > _GROWTH_BYTES
    return int(failed)


def _sanitized() -> bool:
    """Return True if a test failed, or a sanitizer reported an error."""
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(shutil.copytree(_ROOT / "pulsar_ext", Path(scratch, "pulsar_ext")))
        source, target = (package / "_native" / name for name in ("_core.cpp", "_core.abi3.so"))
        options = ["-O1", "-g", "-std=c++17", "-shared", "-fPIC", "-fsanitize=address,undefined"]
        include = f"-I{sysconfig.get_path('include')}"
        subprocess.run(["g++", *options, include, str(source), "-o", str(target)], check=True)
        libraries = [
            subprocess.run(["g++", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout
            for name in ("libasan.so", "libstdc++.so")
        ]
        environment = {
            "LD_PRELOAD": " ".join(map(str.strip, libraries)),
            "ASAN_OPTIONS": "detect_leaks=0",  # CPython frees its memory only at its end
            "UBSAN_OPTIONS": "halt_on_error=1",
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": scratch,
            "PULSAR_EXT_NATIVE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_TESTS]
        return subprocess.run(command, cwd=_ROOT, env={**os.environ, **environment}, check=False).returncode != 0


def _growth(messages: int) -> int:
    """Return the growth of the process in bytes since a tenth of the messages was read."""
    from pulsar_ext._native.core import native_status  # noqa: PLC0415  # the sanitized tests have their own
    from pulsar_ext._native.messages import InnerMessageId, batch_messages  # noqa: PLC0415
    from pulsar_ext.message import received  # noqa: PLC0415

    if not native_status().is_used:
        raise SystemExit(f"the native core is not used: {native_status().why_not}")
    made: queue.Queue[list[object] | None] = queue.Queue(8)
    freeing = threading.Thread(target=lambda: [None for _ in iter(made.get, None)])
    freeing.start()
    before = 0
    for read in range(0, messages, _BATCH):
        if before == 0 and read >= messages // 10:
            before = _resident()
        kept: list[object] = []
        for inner in batch_messages(_PAYLOAD * _BATCH, _BATCH, InnerMessageId(1, 2, read, -1)):
            message = received(inner)
            message_id = message.message_id()
            fields = message.data(), message.properties(), message.partition_key(), message.topic_name()
            kept += (message, message_id, fields, message_id.serialize(), hash(message_id))
            if read % (10 * _BATCH) == 0:
                kept.append(message_id.inner)
        made.put(kept)
    made.put(None)
    freeing.join()
    return _resident() - before


def _growth_of_sends(messages: int) -> int:
    """Return the growth of the process in bytes since a tenth of the messages was batched and reported."""
    from pulsar_ext.produce.core import Items, batch_payload, deliver, entry_message  # noqa: PLC0415

    before, ids = 0, []
    for sent in range(0, messages, _BATCH):
        if before == 0 and sent >= messages // 10:
            before = _resident()
        items = Items()
        for number in range(sent, sent + _BATCH):
            items.append((b"data", lambda _, message_id: ids.append(message_id), number, b"", b"\x12\x01k"))
        contents, callbacks, numbers, fields, keys = items.columns()
        entry_message(batch_payload(contents, numbers, fields), _BATCH - sent % 7, numbers[-1], keys[0])
        deliver(callbacks, None, 1, sent, -1)
        assert ids[-1].serialize()
        ids.clear()
    return _resident() - before


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


if __name__ == "__main__":
    sys.exit(main())
