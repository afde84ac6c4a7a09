"""headway without its compiled code: where there is no compiler, Python does the same."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import headway

ROOT = Path(__file__).parents[2]
SOURCES = Path(headway.__file__).parents[1]
LISTED = (SOURCES / "compiled.txt").read_text().split()
SOME_TESTS = (
    "tests/unit/test_pacer.py",
    "tests/property/test_grants_properties.py",
    "tests/property/test_disk_backed_queue.py",
    "tests/parity",
)


def test_a_struct_of_a_compiled_module_is_what_its_source_says():
    """mypyc drops keywords, docstrings and most annotations; the build gives them to the class."""
    for name in LISTED:
        source = SOURCES / name
        module = importlib.import_module(name.removesuffix(".py").replace("/", "."))
        for node in ast.parse(source.read_text()).body:
            made = getattr(module, node.name) if isinstance(node, ast.ClassDef) else None
            if not isinstance(made, msgspec.StructMeta):
                continue
            assert made.__annotations__ == {
                field.target.id: ast.unparse(field.annotation)
                for field in node.body
                if isinstance(field, ast.AnnAssign)
            }, f"{name}:{node.lineno}"
            for keyword in node.keywords:
                if isinstance(keyword.value, ast.Constant) and hasattr(made.__struct_config__, keyword.arg):
                    assert getattr(made.__struct_config__, keyword.arg) == keyword.value.value


def test_no_compiled_class_has_keywords_but_a_struct():
    for name in LISTED:
        module = importlib.import_module(name.removesuffix(".py").replace("/", "."))
        for node in ast.parse((SOURCES / name).read_text()).body:
            if isinstance(node, ast.ClassDef) and node.keywords:
                assert isinstance(getattr(module, node.name), msgspec.StructMeta), f"{name}:{node.lineno}"


SAMPLE = '''
"""A module with structs."""
from __future__ import annotations

from typing import ClassVar

import msgspec


class Visit(msgspec.Struct, frozen=True, kw_only=True, tag="visit"):
    """How it went."""

    depth: int | None = None
    url: str
    sizes: tuple[int, ...] = ()
    MOST: ClassVar[int] = 3

    @property
    def total(self) -> int:
        return sum(self.sizes)


class Again(Visit, frozen=True, kw_only=True):
    copies: list[str] = []


class Counted:
    def __init__(self) -> None:
        self.visits = 0

    def take(self, visit: Visit) -> int:
        self.visits += 1
        return self.visits + visit.total + Visit.MOST
'''
USE = """
import msgspec
from headway import sample
from headway.sample import Again, Counted, Visit

assert sample.__file__.endswith(".so"), sample.__file__
assert type(Visit) is msgspec.StructMeta and Visit.__doc__ == "How it went."
visit = msgspec.json.decode(b\'{"type": "visit", "url": "x", "depth": null, "sizes": [1, 2]}\', type=Visit)
assert Counted().take(visit) == 7
assert Again(url="y").copies == [] and Again.__struct_config__.frozen
for wrong in (lambda: setattr(visit, "depth", 1), lambda: Visit("x"),
              lambda: msgspec.convert({"type": "visit", "url": "x", "depth": "deep"}, Visit)):
    try:
        wrong()
    except (AttributeError, TypeError, msgspec.ValidationError):
        continue
    raise AssertionError("not refused")
"""


def test_a_struct_keeps_its_keywords_and_types_when_it_is_compiled(tmp_path):
    """Built as the installation builds it, in a package of two modules."""
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    pytest.importorskip("hatchling", reason="the build's own packages are not installed")
    package = tmp_path / "src" / "headway"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "sample.py").write_text(SAMPLE)
    shutil.copy(SOURCES / "headway" / "structhead.py", package)
    (tmp_path / "src" / "compiled.txt").write_text("headway/sample.py\n")
    build = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import hatch_build as hook\n"
        "src = Path(sys.argv[2])\n"
        "hook.put_beside_sources(src, hook.build_translated(src, src.parent / 'build'))"
    )
    for program, *arguments in ([build, str(ROOT), str(tmp_path / "src")], [USE]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), *sys.path])},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_compiled_module_has_a_coroutine():
    """mypyc's are known to raise exceptions that were over."""
    assert not [name for name in LISTED if "async def" in (SOURCES / name).read_text()]


def test_where_one_module_is_compiled_all_are():
    names = [name.removesuffix(".py").replace("/", ".") for name in LISTED]
    compiled = [name for name in names if str(importlib.import_module(name).__file__).endswith(".so")]
    if not compiled and not os.environ.get("CI"):
        pytest.skip("headway was built without a compiler")
    assert compiled == names


def test_the_sources_pass_the_same_tests_and_crawl(tmp_path):
    copy = tmp_path / "src"
    shutil.copytree(SOURCES / "headway", copy / "headway", ignore=shutil.ignore_patterns("*.so", "*.c"))
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    where = "import headway.pacing.meter as m, headway.engine.site_heap as p; print(m.__file__, p.SiteHeap)"
    told = subprocess.run(
        [sys.executable, "-c", where], env=environment, check=True, capture_output=True, text=True
    )
    assert str(copy / "headway" / "pacing" / "meter.py") in told.stdout
    assert "PythonSiteHeap" in told.stdout
    tests = [str(ROOT / name) for name in SOME_TESTS]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests],
        env=environment,
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
