"""Records: types that Python and JSON leave open, and texts as they are seen."""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from private_mcmc.errors import DeclarationError

# A NumPyro model: called for its sample statements, whatever it returns.
Model = Callable[..., object]
PublicArguments = Mapping[str, object]
# What JSON can hold, by name: made, and read.
Record = dict[str, Any]
Fields = Mapping[str, Any]
Constants = Fields  # of a statement


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
    if hasattr(value, "to_dict"):
        return value.to_dict()
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


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
