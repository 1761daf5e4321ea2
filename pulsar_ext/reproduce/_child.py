"""The program of a process that `Apart` starts: read the order from standard input, call, write the answer.

The answer is written before the interpreter ends, because some scenarios are about how it ends.
"""

from __future__ import annotations

import json
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from ._env import Env
from ._place import Place

__all__: list[str] = []


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    function = getattr(import_module(order["module"]), order["function"])
    env = Env(Place(**order["place"]))
    try:
        return {"value": function(import_module(order["client"]), env, *order["arguments"])}
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the answer
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    finally:
        env.close()


def _main() -> None:
    order = json.load(sys.stdin)
    signal.alarm(order["alarm"])
    answer = _answer(order)
    result = Path(order["result"])
    draft = result.with_suffix(".draft")
    draft.write_text(json.dumps(answer, default=lambda value: value.to_dict()))
    draft.rename(result)


if __name__ == "__main__":
    _main()
