"""Array shapes in the types of kernels, checked in every call of a test."""

import re
from pathlib import Path

from beartype import beartype

ROOT = Path(__file__).parents[1]
# Every module of kernels whose types have shapes.
CHECKED = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "private_mcmc" / "kernels").rglob("*.py")
    if "from jaxtyping import" in path.read_text(encoding="utf-8")
)
# Or whose types are names of types with shapes.
_SHAPE = re.compile(r"\b((Float|Bool|Int|UInt|Num|Shaped)\[|(States|Sums|Gradients|Flags|Vector)\b)")


def checked(function):
    """``function`` with its types checked where they have shapes; other arguments are for its own checks."""
    types = " ".join(map(str, getattr(function, "__annotations__", {}).values()))
    return beartype(function) if _SHAPE.search(types) else function
