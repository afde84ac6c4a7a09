"""Builds the compiled code when headway is installed, if there is a compiler; else Python does the same.

Two kinds: the C files, and the modules that `src/compiled.txt` names, which mypyc translates as they are.
`HEADWAY_PURE_PYTHON=1` leaves both out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

C_MODULES = ("headway.parse._fast", "headway.frontier._places", "headway.frontier._seen")
COMPILED = "src/compiled.txt"
GROUP = "headway"


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        remove_built(Path(self.root))
        if self.target_name != "wheel" or os.environ.get("HEADWAY_PURE_PYTHON"):
            return
        for extensions in (c_extensions, translated_extensions):
            try:
                built = build_in_place(Path(self.root), extensions(Path(self.root)))
            except (Exception, SystemExit) as problem:  # whatever it is, there is a way without
                print(f"headway is built without part of its compiled code: {problem}", file=sys.stderr)
                continue
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            for path in built:
                inside = str(path.relative_to(self.root))
                if path.parent.name == "src":  # what the translated modules share stands beside the package
                    build_data["force_include"][inside] = path.name
                else:
                    build_data["artifacts"].append(inside)


def remove_built(root: Path) -> None:
    """What an earlier source was built into must not stand in for this one."""
    for built in (root / "src").rglob("*.so"):
        built.unlink()


def c_extensions(root: Path) -> list[Any]:
    from setuptools import Extension

    sources = {name: root / "src" / f"{name.replace('.', '/')}.c" for name in C_MODULES}
    return [Extension(name, [str(path)], extra_compile_args=["-O2"]) for name, path in sources.items()]


def translated_extensions(root: Path) -> list[Any]:
    from mypyc.build import mypycify

    modules = [str(root / "src" / name) for name in (root / COMPILED).read_text().split()]
    # What is missing while building is not needed to translate, nor is what the other modules make of it; a
    # user's own settings have no say in this.
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    options += ["--cache-dir", os.devnull]
    before = os.environ.get("MYPYPATH")
    os.environ["MYPYPATH"] = str(root / "src")
    try:
        extensions: list[Any] = mypycify(
            [*options, *modules],
            opt_level="1",
            debug_level="0",
            group_name=GROUP,
            target_dir=str(root / "build" / "translated"),
        )
    finally:
        del os.environ["MYPYPATH"]
        if before is not None:
            os.environ["MYPYPATH"] = before
    return extensions


def build_in_place(root: Path, extensions: list[Any]) -> list[Path]:
    """Where they were put."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    command = build_ext(Distribution({"ext_modules": extensions, "package_dir": {"": str(root / "src")}}))
    command.build_temp = str(root / "build" / "temporary")
    command.inplace = True
    command.ensure_finalized()
    command.run()
    built = [Path(command.get_ext_fullpath(extension.name)) for extension in extensions]
    for path in built:
        path.touch()  # as old as this build, also where nothing had to be done: tests look at that
    return built
