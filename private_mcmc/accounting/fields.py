"""What records of statements may hold: these fields, all of them and no others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import get_args

from private_mcmc.accounting.curves.curve import Curve, Gaussian, Laplace, Points, Pure
from private_mcmc.accounting.curves.pld import PAIRS, Product, Sampled
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants
from private_mcmc.schedule import BatchScheme
from private_mcmc.target import Adjacency

Check = Callable[[object], bool]
Fields = Mapping[str, Check]


def check_fields(what: str, record: object, fields: Fields, optional: Fields | None = None) -> None:
    """Raise ``DeclarationError`` unless ``record`` has exactly these fields, each as it must be."""
    if not isinstance(record, Mapping):
        raise DeclarationError(f"{what}: not a record.")
    known = {**fields, **(optional or {})}
    if lost := sorted(fields.keys() - record.keys()):
        raise DeclarationError(f"{what}: without {lost[0]!r} it cannot be verified.")
    if others := sorted(map(repr, record.keys() - known.keys())):
        raise DeclarationError(f"{what}: {others[0]} is not a field of it.")
    for name, value in record.items():
        if not known[name](value):
            raise DeclarationError(f"{what}: {name} is not what it must be.")


def _number(holds: Callable[[float], bool]) -> Check:
    """A number, not NaN and no truth value, of which this holds."""
    return lambda value: (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and not math.isnan(value)
        and holds(value)
    )


def is_count(value: object) -> bool:
    """A whole number, at least 1; larger ones count nothing, and floats would not hold them."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**63


is_finite = _number(math.isfinite)
is_positive = _number(lambda value: 0 < value < math.inf)
is_non_negative = _number(lambda value: 0 <= value < math.inf)
is_bound = _number(lambda value: value >= 0)
is_share = _number(lambda value: 0 <= value <= 1)


def is_string(value: object) -> bool:
    """Words, or none."""
    return isinstance(value, str)


def is_text(value: object) -> bool:
    """Words."""
    return isinstance(value, str) and bool(value.strip())


def one_of(*values: str) -> Check:
    """One of these words."""
    return lambda value: isinstance(value, str) and value in values


def none_or(check: Check) -> Check:
    """Nothing, or what ``check`` accepts."""
    return lambda value: value is None or check(value)


def some(*checks: Check) -> Check:
    """A list that is not empty; each entry is what ``checks`` accept, one check each where they are many."""

    def pair(value: object) -> bool:
        return (
            isinstance(value, tuple)
            and len(value) == len(checks)
            and all(check(item) for check, item in zip(checks, value, strict=True))
        )

    each = checks[0] if len(checks) == 1 else pair
    return lambda value: isinstance(value, tuple) and bool(value) and all(map(each, value))


def record_of(fields: Fields) -> Check:
    """A record with exactly these fields."""

    def check(value: object) -> bool:
        return (
            isinstance(value, Mapping)
            and value.keys() == fields.keys()
            and all(fields[name](item) for name, item in value.items())
        )

    return check


# Of statements and their arguments; of constants more is asked by their rule.
STATEMENT: Fields = {
    "adjacency": one_of(*get_args(Adjacency)),
    "curves": some(lambda curve: isinstance(curve, Mapping)),
    "argument": lambda argument: isinstance(argument, Mapping),
    "parts": lambda parts: isinstance(parts, tuple),
    "mechanism": none_or(is_text),
}
ARGUMENT: Fields = {
    "theorem": is_text,
    "assumptions": lambda lines: isinstance(lines, tuple) and all(map(is_string, lines)),
    "constants": lambda constants: isinstance(constants, Mapping),
    "rule": is_text,
}
UNIT = record_of({"name": is_string, "rows": is_count})
CURVES: Mapping[str, tuple[type[Curve], Fields]] = {
    "gaussian": (Gaussian, {"m": is_bound}),
    "pure": (Pure, {"level": is_bound}),
    "laplace": (Laplace, {"level": is_bound}),
    "points": (Points, {"points": some(is_bound, is_share)}),
    "sampled": (
        Sampled,
        {"pair": one_of(*PAIRS), "rate": is_share, "ratio": is_non_negative, "steps": is_count},
    ),
}


def curve_of(record: Constants) -> Curve:
    """The curve that ``to_dict`` described."""
    if not isinstance(record, Mapping):
        raise DeclarationError("the record of a curve: not a record.")
    kind, given = record.get("kind"), {name: value for name, value in record.items() if name != "kind"}
    if kind == "product":
        check_fields("the record of a curve", given, {"parts": lambda parts: isinstance(parts, tuple)})
        return Product(tuple(map(curve_of, given["parts"])))
    if not (isinstance(kind, str) and kind in CURVES):
        raise DeclarationError(f"the record of a curve: no kind {kind!r} is known.")
    make, wanted = CURVES[kind]
    check_fields(f"the record of a {kind} curve", given, wanted)
    return make(**given)


def _is_release(value: object) -> bool:
    if isinstance(value, tuple) and some(is_count)(value):
        return list(value) == sorted(set(value))
    return value in ("last", "path")


BOUNDS = ("path", "box path", "hidden", "sampled path")
_BATCH: Fields = {
    "scheme": one_of(*get_args(BatchScheme)),
    "rate": none_or(is_share),
    "size": none_or(is_count),
}
_CHAIN: Fields = {
    "step_size": lambda value: is_positive(value) or some(is_positive)(value),
    **dict.fromkeys(("num_steps", "num_chains", "num_rows", "dim"), is_count),
    **dict.fromkeys(("clip", "temper", "noise_ratio", "sensitivity"), is_positive),
    "batch": none_or(record_of(_BATCH)),
    "condition_number": _number(lambda value: 1 <= value < math.inf),
    "strong_convexity": is_non_negative,
    **dict.fromkeys(("smoothness", "prior_smoothness"), is_bound),
}
LANGEVIN: Fields = {**_CHAIN, "release": _is_release, "bounds": some(one_of(*BOUNDS))}
# Only of runs that keep hidden states in a box, and of those whose rows are clipped coordinate by coordinate.
KEPT: Fields = {"within": is_positive, "rounding": is_positive, "prior_slope": is_non_negative}
LANGEVIN_OPTIONAL: Fields = {
    **KEPT,
    **dict.fromkeys(("clips", "metric"), some(is_positive)),
    "noise": lambda value: some(is_positive)(value) or some(some(is_finite))(value),
}
AVERAGE: Fields = {
    **_CHAIN,
    "first": is_count,
    "distance": is_bound,
    "values": some(is_bound, is_bound, is_positive),
    "norm": one_of("L1", "L2"),
    "joint": is_positive,
}

_CONJUGATE: Fields = {"n": is_count, "temper": is_positive, "epsilons": some(is_non_negative)}
BETA_BINOMIAL: Fields = {"a": is_positive, "b": is_positive, "trials": is_count, **_CONJUGATE}
DIRICHLET_CATEGORICAL: Fields = {"concentration": some(is_positive), **_CONJUGATE}
GAMMA_POISSON: Fields = {"shape": is_positive, "largest": is_count, **_CONJUGATE}
_NOISE: Fields = {"sensitivity": is_positive, "scale": is_positive, "dim": is_count, "what": is_string}
LAPLACE: Fields = {"epsilon": is_positive, "grid": is_non_negative, **_NOISE}
GAUSSIAN: Fields = _NOISE
