"""Orderings, policies, scorers and extractors of users: found by a dotted path, or given as objects.

A job names an object as "package.module:Name" or "package.module.Name", with arguments where it needs some:
"package.module:Name(7, weight=0.5)". A class, or a function that returns one, makes a new object for each
crawl; an object that is there already is copied. Whatever a user's code raises becomes a `PluginError` that
says which object failed, in which file and line.
"""

from __future__ import annotations

import ast
import copy
import difflib
import importlib
import inspect
import re
import sys
import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.errors import HeadwayError, JobError

_NAME = r"[^\W\d]\w*"
_REFERENCE = re.compile(
    rf"\s*(?P<module>{_NAME}(?:\.{_NAME})*)(?:(?P<colon>:)(?P<path>{_NAME}(?:\.{_NAME})*))?"
    r"\s*(?P<arguments>\(.*\))?\s*",
    re.DOTALL,
)
_HERE = __file__.removesuffix("plugins.py")
_GIVEN: dict[str, object] = {}
"""Objects of this process that no path leads to, by the text that stands for them in a job."""


class PluginError(HeadwayError):
    """A user's object that failed while the crawl ran."""


class Reference(NamedTuple):
    module: str
    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def is_reference(text: str) -> bool:
    """Whether a name is the path of a user's object, rather than one of headway's own names."""
    match = _REFERENCE.fullmatch(text)
    return text in _GIVEN or (match is not None and ("." in match["module"] or match["colon"] is not None))


def is_given(text: str) -> bool:
    """Whether a text stands for an object that only this process has."""
    return text in _GIVEN


def search_in(folder: str) -> None:
    """Also import from this folder: from the job file's own, and from where the command is run.

    It comes last, so that no file in it takes the place of an installed module.
    """
    if folder not in sys.path:
        sys.path.append(folder)
        importlib.invalidate_caches()


def make(text: str, *, is_made: Callable[[object], bool], what: str) -> Any:
    """A new object of the kind that `is_made` recognises. JobError says why there is none."""
    found = _find(text)
    _, _, args, kwargs = Reference("", "", (), {}) if text in _GIVEN else _parse(text)
    if not inspect.isclass(found) and is_made(found):
        if args or kwargs:
            raise JobError(f"{text!r} is {what} already and takes no arguments; name its class instead")
        if inspect.isroutine(found):
            return found
        try:
            return copy.deepcopy(found)
        except Exception as problem:
            raise JobError(
                f"{text!r} cannot be copied for a crawl ({_shown(problem)}); name its class instead"
            ) from problem
    if not callable(found):
        raise JobError(f"{text!r} is {_article(found)}, not {what}")
    try:
        return found(*args, **kwargs)
    except Exception as problem:
        raise JobError(
            f"{text!r} could not be created: {_shown(problem)}{_place(problem)}; a class is called with the"
            f" arguments that its name gives in the job, here {_call(args, kwargs)}"
        ) from problem


def text_of(thing: object, *, is_made: Callable[[object], bool]) -> str:
    """The text that stands for a user's object in a job: its path, where one leads to it.

    Another process cannot find an object without a path; it then reads why, and what to do.
    """
    is_object = not inspect.isclass(thing) and not inspect.isroutine(thing) and is_made(thing)
    named: Any = type(thing) if is_object else thing
    module, path = getattr(named, "__module__", ""), getattr(named, "__qualname__", "")
    text = f"{module}:{path}"
    if not is_object:
        try:
            if _attribute(importlib.import_module(module), path, text) is thing and module != "__main__":
                return text
        except (JobError, ImportError, ValueError):
            pass
    text += "(...)"
    known = next((name for name, given in _GIVEN.items() if given is thing), None)
    if known is None:
        count = sum(name.startswith(text) for name in _GIVEN)
        known = f"{text} #{count + 1}" if count else text
        _GIVEN[known] = thing
    return known


def is_function(thing: object) -> bool:
    """A function, or an object that can be called like one."""
    return callable(thing) and not inspect.isclass(thing)


def check_method(thing: object, name: str, arguments: Sequence[str], what: str) -> None:
    """JobError unless `thing` has a method that can be called with these arguments, by position."""
    shown = f"{name}({', '.join(arguments)})"
    try:
        method = thing if name == "__call__" else getattr(thing, name, None)
    except Exception as problem:
        raise JobError(
            f"its attribute {name!r} cannot be read: {_shown(problem)}{_place(problem)}"
        ) from problem
    if not callable(method):
        raise JobError(f"it has no method {shown}, which {what} needs")
    if name == "__call__":
        shown = f"a function of ({', '.join(arguments)})"
    if inspect.iscoroutinefunction(method):
        raise JobError(f"it is async, but {what} is called in the middle of a decision: use 'def'")
    try:
        signature = inspect.signature(method)
    except ValueError:
        return  # of compiled code, which does not tell
    try:
        signature.bind(*arguments)
    except TypeError:
        found = getattr(thing, "__name__", "a call") if name == "__call__" else name
        raise JobError(f"{what} needs {shown}, but here it is {found}{signature}") from None


def failure(text: str, doing: str, problem: BaseException) -> PluginError:
    """What to say when a user's object failed."""
    if isinstance(problem, PluginError):
        return problem
    error = PluginError(
        f"{text} failed in {doing}: {_shown(problem)}{_place(problem)}; correct it and run the same command"
        " again, which continues a crawl where it stopped"
    )
    error.__cause__ = problem
    return error


def version_of(thing: object) -> str:
    """A number that changes with the code of a user's object: what was stored by older code is not used."""
    module = inspect.getmodule(thing if inspect.isroutine(thing) else type(thing))
    try:
        return "" if module is None else f"{zlib.crc32(inspect.getsource(module).encode()):08x}"
    except (OSError, TypeError):
        return ""


def _find(text: str) -> object:
    if text in _GIVEN:
        return _GIVEN[text]
    reference = _parse(text)
    if reference.module == "__main__" or Ellipsis in reference.args:
        raise JobError(
            f"{text!r} was given as an object by the program that began the crawl, and only it has it;"
            " put it into a module and name it by its path, such as 'mypackage.orders:Newest'"
        )
    search_in(str(Path.cwd()))
    try:
        module = importlib.import_module(reference.module)
    except ModuleNotFoundError as problem:
        is_itself = problem.name is not None and (
            reference.module == problem.name or reference.module.startswith(f"{problem.name}.")
        )
        if not is_itself:
            raise JobError(
                f"{text!r} cannot be imported: {reference.module} imports {problem.name!r}, which is not"
                f" installed{_place(problem)}"
            ) from problem
        raise JobError(
            f"{text!r} cannot be imported: there is no module {problem.name!r}; it must be installed, or be"
            " in the folder of the job file or in the one where the command is run"
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # SystemExit as well: it would end the command without a word
        raise JobError(f"{text!r} cannot be imported: {_shown(problem)}{_place(problem)}") from problem
    return _attribute(module, reference.path, text)


def _attribute(module: Any, path: str, text: str) -> object:
    found: Any = module
    for name in path.split("."):
        try:
            has_it = hasattr(found, name)
        except Exception as problem:
            raise JobError(f"{text!r} cannot be read: {_shown(problem)}{_place(problem)}") from problem
        if not has_it:
            near = difflib.get_close_matches(name, dir(found), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise JobError(f"{text!r} is not there: {module.__name__} has no {name!r}{hint}")
        found = getattr(found, name)
    return found


def _parse(text: str) -> Reference:
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise JobError(f"{text!r} is not the path of an object, such as 'mypackage.orders:Newest'")
    module, path = match["module"], match["path"]
    if path is None:
        module, _, path = module.rpartition(".")
    if match["arguments"] is None:
        return Reference(module, path, (), {})
    try:
        call = ast.parse(f"f{match['arguments']}", mode="eval").body
        assert isinstance(call, ast.Call)
        args = tuple(ast.literal_eval(each) for each in call.args)
        kwargs = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        assert all(each.arg for each in call.keywords)  # no **
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError):
        raise JobError(
            f"{text!r}: arguments are numbers, texts, lists and the like, as in"
            " 'mypackage.orders:Newest(7, weight=0.5)'"
        ) from None
    return Reference(module, path, args, kwargs)


def _shown(problem: BaseException) -> str:
    text = " ".join(str(problem).split())
    text = text if len(text) <= 300 else f"{text[:297]}..."
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _place(problem: BaseException) -> str:
    """File and line in the user's code, as far as one is known."""
    if isinstance(problem, SyntaxError):
        return f" ({problem.filename}, line {problem.lineno})"
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if not frame.filename.startswith(("<", _HERE))
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    shown = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
    return f"with {', '.join(shown)}" if shown else "with none"


def _article(found: object) -> str:
    return f"a {type(found).__name__}"
