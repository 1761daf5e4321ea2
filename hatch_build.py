"""Builds the native core into a wheel; if it cannot be built, the wheel is pure Python with the same behaviour.

`PULSAR_EXT_PURE=1` disables the build.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension

_MODULE = "pulsar_ext._native._core"
_SOURCE = "pulsar_ext/_native/_core.cpp"


class NativeCore(BuildHookInterface):  # type: ignore[misc]  # hatchling is installed only while a wheel is built
    """Build hook that adds the extension to a wheel, or puts it beside its source for an editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the extension if it is supported: on Linux, for Pythons with the stable ABI."""
        has_stable_abi = sys.platform == "linux" and not sysconfig.get_config_var("Py_GIL_DISABLED")
        if os.environ.get("PULSAR_EXT_PURE") == "1" or not has_stable_abi:
            return
        self._scratch = TemporaryDirectory()  # separate, because two builds may run at once
        built = self._build(in_place=version == "editable")
        if built is None:
            self.app.display_warning(
                "pulsar_ext: no C++17 compiler found; continuing without the native core, in pure Python"
            )
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if version != "editable":
            build_data["force_include"][str(built)] = str(Path(_SOURCE).parent / built.name)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the built file, which is in the wheel."""
        del version, build_data, artifact_path
        if hasattr(self, "_scratch"):
            self._scratch.cleanup()

    def _build(self, *, in_place: bool) -> Path | None:
        """Return the extension; None if it cannot be built."""
        extension = Extension(
            _MODULE,
            [_SOURCE],
            language="c++",
            extra_compile_args=["-std=c++17", "-O2", "-g0", "-fvisibility=hidden"],
            py_limited_api=True,
            optional=True,
        )
        command: Any = Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
        command.build_lib = command.build_temp = self._scratch.name
        command.inplace = in_place
        command.force = True
        command.ensure_finalized()
        built = Path(self.root, command.get_ext_fullpath(_MODULE))
        built.unlink(missing_ok=True)
        before = Path.cwd()
        os.chdir(self.root)
        try:
            command.run()
        finally:
            os.chdir(before)
        return built if built.exists() else None
