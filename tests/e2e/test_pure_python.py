"""headway without its compiled code: where there is no compiler, Python does the same."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headway

ROOT = Path(__file__).parents[2]
SOURCES = Path(headway.__file__).parents[1]
LISTED = (SOURCES / "compiled.txt").read_text().split()
SOME_TESTS = (
    "tests/unit/test_pacer.py",
    "tests/property/test_grants_properties.py",
    "tests/property/test_spilling.py",
    "tests/parity",
)


def test_no_compiled_module_has_keywords_in_the_head_of_a_class():
    """mypyc drops them, so that a frozen struct would not be frozen."""
    for name in LISTED:
        heads = [line for line in (SOURCES / name).read_text().splitlines() if line.startswith("class ")]
        assert not [head for head in heads if "=" in head or "Struct" in head], name


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
    where = "import headway.fetch.meter as m, headway.frontier.places as p; print(m.__file__, p.Places)"
    told = subprocess.run(
        [sys.executable, "-c", where], env=environment, check=True, capture_output=True, text=True
    )
    assert str(copy / "headway" / "fetch" / "meter.py") in told.stdout
    assert "PythonPlaces" in told.stdout
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
