"""Records and other values that Python and JSON leave open: their types, and constants as JSON and back."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any, Literal

from private_mcmc.errors import DeclarationError

# A NumPyro model: called for its sample statements, whatever it returns.
Model = Callable[..., object]
PublicArguments = Mapping[str, object]
# What JSON can hold, by name: made, and read.
Record = dict[str, Any]
Fields = Mapping[str, Any]
# What a constant of a statement may be.
Constant = None | bool | int | float | str | tuple["Constant", ...] | Mapping[str, "Constant"]
Constants = Fields
Parts = Sequence[Constants]

# For ``jax.jit(compiler_options=…)``: all that LLVM could do takes longer than it saves, in programs that run
# a few times and in those that run on few rows. On CPUs XLA's older emitters compile in a third of the time:
# JAX has them up to 0.10, and refuses the option after that.
OLDER_EMITTERS: Record = {"xla_cpu_use_fusion_emitters": False} if version("jax") < "0.11" else {}
RUN_ONCE: Record = {
    "xla_backend_optimization_level": 0,
    **OLDER_EMITTERS,
    "xla_cpu_parallel_codegen_split_count": 1,
}
ON_FEW_ROWS: Record = {"xla_backend_optimization_level": 1}


def blas_of_one_thread() -> AbstractContextManager[Any]:
    """Matrices of models are small: threads of the BLAS would spin for one another, hundreds of times longer.

    A gradient of 512 bivariate Normal densities took 17 ms with two threads beside other work, .03 with one.
    """
    from threadpoolctl import threadpool_limits  # here: commands need none of it for their help

    limits: AbstractContextManager[Any] = threadpool_limits(1, user_api="blas")
    return limits


def plain(value: object) -> Any:
    """``value`` in JSON types; infinities become the strings ``"inf"`` and ``"-inf"``, NaN is refused."""
    import numpy as np  # here, since the help of a command waits for no numerical library

    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        if math.isnan(value):
            raise DeclarationError("a statement never holds NaN.")
        return float(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, str):
        return value
    raise DeclarationError(f"a constant of type {type(value).__name__} cannot be written as JSON.")


def unplain(value: Any) -> Any:
    """Inverse of ``plain``; lists become tuples."""
    if isinstance(value, Mapping):
        return {key: unplain(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(unplain(item) for item in value)
    if value in ("inf", "-inf"):
        return float(value)
    return value


# What no font draws, beside the categories Cf and Cc: joiners, fillers and selectors of variants (Unicode's
# property Default_Ignorable_Code_Point).
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")


# What programs put in the place of a typed apostrophe or quote; dashes are told by their category.
_TYPED = dict.fromkeys("‘’‛ʹʻʼ′", "'") | dict.fromkeys("“”„‟″", '"')
# An acute accent by itself, in the form NFKC.
_ACCENT = " \u0301"


def text_of_bytes(value: bytes) -> str:
    """In UTF-8, or where it is none in Latin-1, which every text of bytes is."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def as_seen(text: str) -> str:
    """``text`` as its readers tell it from others: in the form NFKC, with digits, dashes, quotes and spaces
    of ASCII, one space where there are several, nothing unseen.
    """
    if not (text.isascii() and text.isprintable()):
        composed = _UNSEEN.sub("", normalized("NFKC", text)).replace(_ACCENT, "'")
        # What stood apart may compose now.
        text = normalized("NFKC", "".join(map(_typed, composed)))
    return " ".join(text.split())


def _typed(sign: str) -> str:
    """A sign as a keyboard has it; empty for what nobody sees."""
    category = unicodedata.category(sign)
    if sign.isspace():
        return " "
    if category == "Pd" or sign == "\u2212":
        return "-"
    if category in ("Cf", "Cc"):
        return ""
    return str(unicodedata.decimal(sign)) if sign.isdecimal() else _TYPED.get(sign, sign)


# Controls of terminals, marks that turn the direction of writing, and what nobody sees.
_STEERING = re.compile("[^\\n\\t -~\u00a1-\u00ac\u00ae-\u05ff]")
_JOINERS = "\u00ad\u200c\u200d"  # which words of some languages need


def visible(text: str) -> str:
    """``text`` for a terminal or a page: what would steer it, or turn or hide what is read, as ``\\u001b``.

    Of JSON it is the same JSON, since a sign within a string may be written so.
    """
    return _STEERING.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    if sign in _JOINERS or unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return sign
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


# Signs of a text that is taken as it is, and marks on one letter beyond which no language goes.
_SHORT, _MARKS = 1_000, 30


def normalized(form: Literal["NFC", "NFKC"], text: str) -> str:
    """``unicodedata.normalize`` in a time proportional to the length.

    The marks on one letter are put into order one by one, so that one long cell could hold up everybody:
    those of a long text get a joiner after every thirtieth (Unicode's Stream-Safe Text Format, UAX 15).
    """
    if len(text) > _SHORT:
        marks, parts = 0, []
        for sign in text:
            marks = marks + 1 if unicodedata.combining(sign) else 0
            parts.append("\u034f" + sign if marks and marks % _MARKS == 0 else sign)
        text = "".join(parts)
    return unicodedata.normalize(form, text)
