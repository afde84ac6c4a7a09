"""Builds the C code when headway is installed, if there is a compiler; without one, Python does the same.

`HEADWAY_PURE_PYTHON=1` leaves it out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "headway.parse._fast"
SOURCE = "src/headway/parse/_fast.c"


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get("HEADWAY_PURE_PYTHON"):
            return
        try:
            built = build_in_place(Path(self.root))
        except Exception as problem:  # whatever it is, there is a way without
            print(f"headway is built without its C code: {problem}", file=sys.stderr)
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(built)


def build_in_place(root: Path) -> str:
    """Where it was put, seen from the root."""
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    extension = Extension(NAME, [str(root / SOURCE)], extra_compile_args=["-O2"])
    command = build_ext(Distribution({"ext_modules": [extension], "package_dir": {"": str(root / "src")}}))
    command.build_temp = str(root / "build" / "temporary")
    command.inplace = True
    command.ensure_finalized()
    command.run()
    return str(Path(command.get_ext_fullpath(NAME)).relative_to(root))
