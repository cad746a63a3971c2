"""Curves and constants to JSON types and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from private_mcmc.accounting.curves.curve import (
    Concentrated,
    Curve,
    ExceptWithProbability,
    Gaussian,
    Laplace,
    Points,
    Pure,
)
from private_mcmc.accounting.curves.pld import Sampled
from private_mcmc.accounting.curves.product import Product
from private_mcmc.accounting.langevin.truncated_poisson import Truncated
from private_mcmc.errors import DeclarationError

# What constants of a statement may be.
Constant = None | bool | int | float | str | tuple["Constant", ...] | Mapping[str, "Constant"]

_SIMPLE: dict[str, type[Curve]] = {kind.kind: kind for kind in (Gaussian, Pure, Laplace, Concentrated)}


def plain(value: Any) -> Any:
    """``value`` in JSON types; infinities become the strings ``"inf"`` and ``"-inf"``, NaN is refused."""
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


def taken(record: object, name: str, *kinds: type) -> Any:
    """The field ``name`` of a record, if it is there and of one of these types.

    Raises:
        DeclarationError: otherwise.
    """
    if not isinstance(record, Mapping):
        raise DeclarationError("the record of a statement is not a table of names and values.")
    if name not in record or not isinstance(record[name], kinds):
        raise DeclarationError(f"the record of a statement: {name!r} is missing or of the wrong type.")
    return record[name]


def curve_from_dict(record: Mapping[str, Any]) -> Curve:
    """The curve a ``to_dict`` described.

    Raises:
        DeclarationError: for an unknown kind, or fields that it does not have.
    """
    kind = taken(record, "kind", str)
    try:
        return _curve(kind, record)
    except RecursionError as error:
        raise DeclarationError("the record of a privacy curve is nested too deeply.") from error
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, DeclarationError):
            raise
        raise DeclarationError(
            f"the record of a {kind!r} curve is incomplete or invalid ({error!r})."
        ) from error


def _curve(kind: str, record: Mapping[str, Any]) -> Curve:
    values = {key: unplain(item) for key, item in record.items() if key != "kind"}
    if kind in _SIMPLE:
        return _SIMPLE[kind](**{key: float(item) for key, item in values.items()})  # type: ignore[call-arg]
    if kind == "points":
        return Points(tuple((float(level), float(miss)) for level, miss in values["points"]))
    if kind == "sampled":
        return Sampled(
            str(values["pair"]), float(values["rate"]), float(values["ratio"]), int(values["steps"])
        )
    if kind == "truncated":
        return Truncated(
            float(values["rate"]),
            int(values["cap"]),
            float(values["ratio"]),
            int(values["steps"]),
            int(values["max_rows"]),
        )
    if kind == "unless":
        return ExceptWithProbability(curve_from_dict(record["inner"]), float(values["failure"]))
    if kind == "product":
        return Product(tuple(curve_from_dict(part) for part in record["parts"]))
    raise DeclarationError(f"unknown kind of privacy curve {kind!r}.")
