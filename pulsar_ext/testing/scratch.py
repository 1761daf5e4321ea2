"""A directory for what runs: gone when it is removed, and when the process that made it is gone, however that ended.

The guards of programs do not see to that: there is none while a program that was killed waits to be started again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import guard


class ScratchDirectory:
    """A new temporary directory under a guard.

    Args:
        prefix: what its name begins with.
    """

    def __init__(self, prefix: str = "pulsar-ext-") -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), "directory", str(self.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Remove it with all that is in it; nothing that runs may use it any more. A second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._guard.kill()
        self._guard.wait()
