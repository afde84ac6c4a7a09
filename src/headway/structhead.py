"""Gives a struct in a compiled module what mypyc drops: class keywords, docstring and full annotations.

`hatch_build.py` writes them into the class body in the copy of the module that it compiles. The result is
the same class that Python creates from the source, of type `msgspec.StructMeta`. No source file imports
this module.
"""

from __future__ import annotations

from typing import Any

import msgspec


def head(annotations: dict[str, str], doc: str | None, /, **keywords: Any) -> Any:
    return annotations, doc, keywords


class StructHead(msgspec.StructMeta):
    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        annotations, doc, keywords = namespace.pop("__head__")
        namespace |= {"__annotations__": annotations, "__doc__": doc}
        return msgspec.StructMeta(name, bases, namespace, **keywords)
