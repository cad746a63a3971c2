"""Public names and their signatures as text; ``python -m tests.golden.api`` writes the file anew."""

import inspect
import re
from pathlib import Path

import private_mcmc as pmc

FILE = Path(__file__).with_name("api.txt")


def arguments(of):
    """Names, kinds and defaults of arguments; without annotations, which are for type checkers."""
    try:
        signature = inspect.signature(of)
    except (TypeError, ValueError):
        return ""
    plain = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return re.sub(
        r" at 0x\w+", "", str(signature.replace(parameters=plain, return_annotation=signature.empty))
    )


def members(found):
    """Those of a class and of what it inherits from in the package, unless that is public by itself."""
    public = [getattr(pmc, name) for name in pmc.__all__]
    own = [base for base in found.__mro__ if base is found or base not in public]
    return {
        name: member
        for base in reversed(own)
        if base.__module__.startswith("private_mcmc")
        for name, member in vars(base).items()
    }


def described():
    """A line for each public name, and for each public method and property of a class."""
    for name in sorted(pmc.__all__):
        found = getattr(pmc, name)
        if inspect.ismodule(found):
            yield name
            continue
        yield name + arguments(found)
        if not inspect.isclass(found) or issubclass(found, Exception):
            continue
        for method, member in sorted(members(found).items()):
            if not method.startswith("_"):
                inner = getattr(member, "__func__", member)
                yield f"{name}.{method}" + (arguments(inner) if callable(inner) else "")


def text():
    return "\n".join(described()) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
