"""Blocks with a clean-up protect every point where Python checks for signals, as the bytecode shows."""

from __future__ import annotations

import ast
import dis
import sys
import textwrap
from pathlib import Path
from types import CodeType

import pytest

import pulsar_ext

PACKAGE = Path(pulsar_ext.__file__).parent
MODULES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).parts[0] not in {"cli", "reproduce", "spark", "testing"}
)
ON_A_THREAD = {
    "_runtime/scheduler.py Scheduler._await_work",
    "_runtime/scheduler.py Scheduler._do_work",
    "ack/cursor.py CursorMonitor.tick",
    "ack/cursor.py CursorMonitor._check_sessions",
}
"""Loops that run only on a scheduler's thread, where signal handlers do not run."""
HARMLESS = ("contextlib.suppress(", "suppress(")
"""Blocks without a clean-up."""


def codes_of(code):
    """Yield a code object and the nested ones."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from codes_of(one)


def handlers_of(table, offset):
    """Return the handler of an exception at an instruction, and the handlers of one raised there."""
    found = []
    while (target := next((one.target for one in table if one.start <= offset < one.end), None)) not in {None, *found}:
        found.append(target)
        offset = target
    return found


def undoes(steps, source):
    """Return whether a handler, a list of instructions, ends a `with` block, or is a `finally` or a catch-all."""
    if steps[0].opname != "PUSH_EXC_INFO":
        return False  # the compiler's: of a comprehension, a generator, or the end of another handler
    if steps[1].opname == "WITH_EXCEPT_START":
        at = steps[0].positions
        line = source.splitlines()[at.lineno - 1].encode()[at.col_offset :].decode()
        return not line.removeprefix("with ").startswith(HARMLESS)
    names = []
    for one in steps[1:]:
        if one.opname == "CHECK_EXC_MATCH":
            return not {"BaseException", "KeyboardInterrupt"}.isdisjoint(names)
        if not one.opname.startswith(("LOAD_", "BUILD_TUPLE")):
            break
        names.append(one.argval)
    return True


def unprotected(source, name):
    """Yield the functions with a backward jump outside the block that protects its loop."""
    for code in codes_of(compile(source, name, "exec")):
        table = dis._parse_exception_table(code)  # there is no public one
        steps = list(dis.get_instructions(code))
        for one in steps:
            # A jump without a line returns into an `await` that raised, where an event loop's handler cancels.
            is_look = "JUMP_BACKWARD" in one.opname and "NO_INTERRUPT" not in one.opname and one.positions.lineno
            if is_look and not handlers_of(table, one.offset):
                around = handlers_of(table, one.argval)
                if any(undoes([step for step in steps if step.offset >= target], source) for target in around):
                    yield f"{name} {code.co_qualname}"


def test_loops_in_with_blocks_end_inside_them():
    """Loops inside a `with` or a `finally` never end with a jump that the compiler placed outside the block."""
    assert len(MODULES) > 100
    found = {one for path in MODULES for one in unprotected(path.read_text(), str(path.relative_to(PACKAGE)))}
    assert found <= ON_A_THREAD


@pytest.mark.parametrize(
    ("body", "harms"),
    [
        ("with lock:\n for one in every:\n  if one: use(one)", True),
        ("try:\n for one in every:\n  if one: use(one)\nfinally: end()", True),
        ("try:\n for one in every:\n  if one: use(one)\nexcept BaseException: end()", True),
        ("try:\n for one in every:\n  if one: use(one)\nexcept ValueError: end()", False),
        ("with contextlib.suppress(ValueError):\n for one in every:\n  if one: use(one)", False),
        ("with lock:\n for one in every:\n  use(one)", False),
    ],
)
def test_unprotected_jumps_are_detected(body, harms):
    """Each shape that CPython 3.12 and later leave unprotected is detected, and no other."""
    source = f"def loop():\n{textwrap.indent(body, ' ')}\n"
    assert list(unprotected(source, "m")) == ["m loop"] * (harms and sys.version_info >= (3, 12))


def python_locks_in_blocks(path):
    """Return Python's own locks that a module acquires by a `with`."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    pythons = {
        ast.unparse(target)
        for node in nodes
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(("threading.", "threads.Lock"))
        for target in node.targets
    }
    blocks = [node for node in nodes if isinstance(node, ast.With)]
    return pythons & {ast.unparse(item.context_expr) for node in blocks for item in node.items}


def test_with_blocks_use_no_python_locks():
    """Every `with` acquires a lock of `_native/locks.py`: CPython 3.14 may leave any other one held."""
    found = {str(path.relative_to(PACKAGE)) for path in MODULES if python_locks_in_blocks(path)}
    assert found == {"_native/seek_gate.py"}  # which acquires it on its own thread
