"""The text of a model that runs, where the file that it came from still has it."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterator
from types import CodeType

from private_mcmc.records import Model


def shown_source(model: Model) -> str:
    """The source of ``model``; empty where there is none, or where its file has another by now."""
    function = inspect.unwrap(model)
    try:
        source, code = inspect.getsource(function), function.__code__  # type: ignore[attr-defined]
        file = inspect.getsourcefile(function) or inspect.getfile(function)
        lines = linecache.getlines(file, function.__globals__)  # type: ignore[attr-defined]
        whole = compile("".join(lines), file, "exec", dont_inherit=True)
    except (OSError, TypeError, AttributeError, SyntaxError, ValueError):
        return ""
    # The text is looked up by the number of its line: it must be there, too.
    same = (_place(each) == _place(code) and _meaning(each) == _meaning(code) for each in _all(whole))
    return source if any(same) else ""


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _all(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _all(inner)


def _meaning(code: CodeType) -> tuple[object, ...]:
    """All that a code does, wherever in a file it stands."""
    constants = tuple(
        _meaning(one) if isinstance(one, CodeType) else (type(one), repr(one)) for one in code.co_consts
    )
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants
