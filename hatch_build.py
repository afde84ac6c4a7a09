"""Builds the compiled code when headway is installed; without a compiler, Python runs the same sources.

There are two kinds: the C files of our own, and the modules in `src/compiled.txt`, which mypyc translates.
`HEADWAY_PURE_PYTHON=1` leaves both out, and the build then needs nothing but hatchling.
"""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GROUP = "headway"
LIBRARY = f"{GROUP}__mypyc"
"""What all translated modules share; mypyc gives it this name."""
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
PARTS = 8
"""C files into which the translated modules are joined. More keep more cores busy; each reads all headers."""


class CustomBuildHook(BuildHookInterface):
    def dependencies(self) -> list[str]:
        # mypyc has to know that a msgspec.Struct is not an ordinary class.
        return ["setuptools>=70", "mypy>=2.3", "msgspec>=0.20"] if self._compiles() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root, is_editable = Path(self.root), version == "editable"
        built: dict[str, Path] = {}
        if self._compiles():
            shutil.rmtree(root / "build" / "compiled", ignore_errors=True)
            for build in (build_own, build_translated):
                try:
                    built |= build(root / "src", root / "build" / "compiled")
                except (Exception, SystemExit) as problem:  # whatever it is, Python can run the sources
                    print(f"headway is built without part of its compiled code: {problem}", file=sys.stderr)
        if is_editable:
            put_beside_sources(root / "src", built)
        elif built:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            tree = root / "build" / "compiled" / "wheel"
            put(built, tree)
            build_data["force_include"].update({str(tree / name): name for name in built})

    def _compiles(self) -> bool:
        return self.target_name == "wheel" and not os.environ.get("HEADWAY_PURE_PYTHON")


def put_beside_sources(src: Path, built: dict[str, Path]) -> None:
    for old in src.rglob("*.so"):
        old.unlink()  # built from an earlier source, it must not stand in for this one
    put(built, src)


def put(built: dict[str, Path], folder: Path) -> None:
    """Several modules may be copies of one file."""
    for name, path in built.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)


def build_own(src: Path, build: Path) -> dict[str, Path]:
    """Build each C file; returns what was built, by the place in `src` where it belongs."""
    toolchain = Toolchain(build / "own", ["-O2"])
    sources = sorted(src.rglob("_*.c"))
    return {
        str(source.relative_to(src).with_suffix(SUFFIX)): toolchain.link([compiled], source.stem)
        for source, compiled in zip(sources, toolchain.compile(sources), strict=True)
    }


def build_translated(src: Path, build: Path) -> dict[str, Path]:
    modules = (src / "compiled.txt").read_text().split()
    copy_sources(src, build / "src", modules)
    library, *shims = translate(modules, build)
    # -O2 takes half as long again as -O1 and runs no faster: docs/decisions/compiled-modules.md.
    toolchain = Toolchain(build / "objects", ["-O1"], library.include_dirs)
    parts = join_sources(map(Path, library.sources), build / "parts")
    sources = {shim.name.replace(".", "/"): Path(shim.sources[0]) for shim in shims}
    layers = join_shims(sources.values(), build / "shims")
    objects = toolchain.compile([*parts, *layers])
    built = {f"{LIBRARY}{SUFFIX}": toolchain.link(objects[: len(parts)], LIBRARY)}
    for layer, compiled in zip(layers, objects[len(parts) :], strict=True):
        linked = toolchain.link([compiled], layer.stem)
        built |= {f"{name}{SUFFIX}": linked for name, source in sources.items() if source in layers[layer]}
    return built


def translate(modules: Sequence[str], build: Path) -> list[Any]:
    """Have mypyc write the C files. The first extension is the library, the others load one module of it."""
    import msgspec
    from mypyc.build import mypycify

    # The types of other packages make no difference, take longer to read than our own, and are not the same
    # in every environment; a user's own settings have no say either.
    options = [
        "--config-file=",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--cache-dir",
        os.devnull,
    ]
    options += ["--no-site-packages", "--explicit-package-bases"]
    no_code = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(Path(msgspec.__file__).parent, build / "types" / "msgspec", ignore=no_code)
    before = os.environ.get("MYPYPATH")
    os.environ["MYPYPATH"] = str(build / "types")
    try:
        with contextlib.chdir(build / "src"):  # so that tracebacks name headway/pacing/pacer.py everywhere
            extensions: list[Any] = mypycify(
                [*options, *modules], multi_file=True, group_name=GROUP, target_dir=str(build / "generated")
            )
    finally:
        del os.environ["MYPYPATH"]
        if before is not None:
            os.environ["MYPYPATH"] = before
    return extensions


def join_sources(sources: Iterable[Path], folder: Path) -> list[Path]:
    """A few C files of about the same length that include all of them."""
    parts: list[list[Path]] = [[] for _ in range(PARTS)]
    lengths = [0] * PARTS
    for source in sorted(sources, key=lambda path: path.stat().st_size, reverse=True):
        shortest = lengths.index(min(lengths))
        parts[shortest].append(source)
        lengths[shortest] += source.stat().st_size
    folder.mkdir(parents=True)
    joined = [folder / f"part{number}.c" for number in range(PARTS)]
    for path, part in zip(joined, parts, strict=True):
        path.write_text("".join(f'#include "{source}"\n' for source in part))
    return joined


def join_shims(shims: Iterable[Path], folder: Path) -> dict[Path, list[Path]]:
    """C files that include as many shims as can be linked together: most modules are then copies of one file.

    A shim is named after the last part of its module's name, which several modules may have in common.
    """
    layers: dict[Path, list[Path]] = defaultdict(list)
    of_name: dict[str, int] = defaultdict(int)
    folder.mkdir(parents=True)
    for shim in shims:
        layers[folder / f"shims{of_name[shim.stem]}.c"].append(shim)
        of_name[shim.stem] += 1
    for path, members in layers.items():
        # Each shim also answers to __init__, for the sake of another compiler.
        path.write_text(
            "".join(
                f'#undef PyInit___init__\n#define PyInit___init__ unused_{number}\n#include "{shim}"\n'
                for number, shim in enumerate(members)
            )
        )
    return layers


class Toolchain:
    """The C compiler that extensions of this Python are built with, on all cores."""

    def __init__(self, folder: Path, flags: Sequence[str], include: Sequence[str] = ()) -> None:
        import setuptools  # noqa: F401, I001 - brings distutils, which later Pythons lack
        from distutils import ccompiler, sysconfig

        self._compiler: Any = ccompiler.new_compiler()
        sysconfig.customize_compiler(self._compiler)
        # Looking for something to warn of takes gcc as long as compiling, and nobody wrote the code by hand.
        self._compiler.compiler_so = [
            word for word in self._compiler.compiler_so if not word.startswith(("-W", "-g")) or "," in word
        ]
        self._folder, self._flags = folder, flags
        self._include = [
            *include,
            *{sysconfig.get_python_inc(), sysconfig.get_python_inc(plat_specific=True)},
        ]

    def compile(self, sources: Iterable[Path]) -> list[Path]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [path for paths in pool.map(self._compile_one, sources) for path in paths]

    def link(self, objects: Sequence[Path], name: str) -> Path:
        linked = self._folder / f"{name}{SUFFIX}"
        self._compiler.link_shared_object([str(path) for path in objects], str(linked))
        return linked

    def _compile_one(self, source: Path) -> list[Path]:
        made = self._compiler.compile(
            [str(source)],
            output_dir=str(self._folder),
            include_dirs=self._include,
            extra_postargs=self._flags,
        )
        return [Path(path) for path in made]


def copy_sources(src: Path, copy: Path, translated: Iterable[str]) -> None:
    shutil.copytree(src, copy, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    for name in translated:
        path = copy / name
        path.write_text(with_heads_of_structs(path.read_text(encoding="utf-8"), name), encoding="utf-8")


def with_heads_of_structs(text: str, name: str) -> str:
    """Write what mypyc drops of a struct into its body, where `headway.structhead` finds it.

    mypyc drops the keywords (`frozen=True`), the docstring, and of annotations all but plain classes.
    No line moves, so that tracebacks fit the sources.
    """
    tree = ast.parse(text)
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    inserts: list[tuple[int, int, str]] = []
    structs = {"Struct", "msgspec.Struct"}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        keywords = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if not structs & {ast.unparse(base) for base in node.bases} and not keywords.keys() - {"metaclass"}:
            continue
        structs.add(node.name)
        first = node.body[0]
        if not isinstance(first, ast.Expr | ast.AnnAssign | ast.Assign | ast.Pass):
            raise SyntaxError(f"{name}:{first.lineno}: {node.name} has to begin with a docstring or a field")  # noqa: TRY004
        annotations = {
            each.target.id: ast.unparse(each.annotation)
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        given = "".join(f", {word}={value}" for word, value in keywords.items())
        head = f"__head__ = _head({annotations!r}, {ast.get_docstring(node, clean=False)!r}{given}); "
        last = [*node.bases, *(word.value for word in node.keywords)][-1]
        inserts.append((first.lineno, first.col_offset, head))
        inserts.append((last.end_lineno or 0, last.end_col_offset or 0, ", metaclass=_StructHead"))
    if inserts:
        future = next(node for node in tree.body if isinstance(node, ast.ImportFrom))
        importing = "; from headway.structhead import StructHead as _StructHead, head as _head"
        inserts.append((future.end_lineno or 0, future.end_col_offset or 0, importing))
    for line, column, words in sorted(inserts, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + words.encode() + old[column:]
    return b"".join(lines).decode()
