"""The map in src/headway/README.md names every package and module at the top, and none that does not
exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import headway

HOME = Path(headway.__file__).parent
LONGEST = 750
MOST_FILES = 220
MOST_PARAMETERS = 8


def test_the_map_is_true() -> None:
    table = re.findall(r"^\| `([^`]+)` \|", (HOME / "README.md").read_text(), flags=re.MULTILINE)
    packages = {f"{path.name}/" for path in HOME.iterdir() if (path / "__init__.py").exists()}
    modules = {path.name for path in HOME.glob("*.py") if not path.name.startswith("__")}
    assert set(table) == packages | modules
    assert len(table) == len(set(table))


def test_no_module_is_too_long() -> None:
    too_long = {
        str(path.relative_to(HOME)): lines
        for path in HOME.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > LONGEST
    }
    assert not too_long


def test_the_product_has_few_enough_files_to_know_them() -> None:
    files = [path for ending in ("py", "c") for path in HOME.rglob(f"*.{ending}")]
    assert 100 < len(files) <= MOST_FILES


def test_no_constructor_has_too_many_parameters() -> None:
    seen, too_many = 0, {}
    for path in HOME.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                given = node.args
                count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
                seen += 1
                # The keywords of the public Plan are the keys of the job file: configuration.
                if count > MOST_PARAMETERS and path.name != "api.py":
                    too_many[f"{path.relative_to(HOME)}:{node.lineno}"] = count
    assert seen > 100
    assert not too_many


def test_no_service_declared_by_its_fields_has_too_many() -> None:
    """A struct or dataclass that can change and has methods is a service; a frozen one is a value."""
    seen, too_many = 0, {}
    for path in HOME.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and _is_changing_record(node):
                seen += 1
                fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
                methods = [
                    part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
                ]
                if methods and len(fields) > MOST_PARAMETERS:
                    too_many[f"{path.relative_to(HOME)}:{node.lineno}"] = len(fields)
    assert seen > 5
    assert not too_many


def _is_changing_record(node: ast.ClassDef) -> bool:
    heads = [ast.unparse(each) for each in (*node.decorator_list, *node.bases)]
    is_record = any("dataclass" in head or head.endswith("Struct") for head in heads)
    keywords = [ast.unparse(each) for each in node.keywords]
    return is_record and not any("frozen=True" in each for each in (*heads, *keywords))


OLD_WORDS = re.compile(
    r"\b(whoever|anew|reckon\w*|cannot be had|be told|is told|steward|parasite)\b", re.IGNORECASE
)
KEPT = {"squid.md", "collectors.md"}
"""Pages that quote a paper's own term, the cache parasite of cobweb1999."""


def test_text_uses_the_words_of_the_field() -> None:
    pages = [*HOME.rglob("*.py"), *(HOME.parents[1] / "docs").rglob("*.md"), HOME.parents[1] / "README.md"]
    found = [
        f"{path.name}: {match[0]}"
        for path in pages
        if path.parent != HOME / "squid" and path.name not in KEPT
        for match in OLD_WORDS.finditer(path.read_text())
    ]
    assert len(pages) > 150
    assert not found
