"""Array shapes in the types of kernels, checked in every call of a test."""

import re

from beartype import beartype

# With every module in them.
CHECKED = ("private_mcmc.kernels",)
_SHAPE = re.compile(r"\b(Float|Bool|Int|UInt|Num|Shaped)\[")


def checked(function):
    """``function`` with its types checked where they have shapes; other arguments are for its own checks."""
    types = " ".join(map(str, getattr(function, "__annotations__", {}).values()))
    return beartype(function) if _SHAPE.search(types) else function
