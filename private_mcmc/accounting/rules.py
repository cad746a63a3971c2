"""Statements checked: a record goes in, and its curves must be those that its constants give.

The functions that compute them are the ones that made the statement: making one is writing its record and
calling the rule's function. Recordings and code that disagree are found here; that the functions are right is
held by an independent second derivation in the tests.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from private_mcmc.accounting import fields, mechanisms
from private_mcmc.accounting.assumptions import check_words
from private_mcmc.accounting.composition import adaptive_curves, composition_curves, group_curves
from private_mcmc.accounting.conjugate import conjugate_points
from private_mcmc.accounting.curves.curve import Curve
from private_mcmc.accounting.fields import (
    check_fields,
    is_count,
    is_string,
    is_text,
    none_or,
    one_of,
    record_of,
    some,
)
from private_mcmc.accounting.langevin.langevin_statement import average_curves, langevin_curves
from private_mcmc.accounting.statement import Statement, set_check
from private_mcmc.errors import DeclarationError, PrivateMCMCError
from private_mcmc.records import Constants, plain, unplain
from private_mcmc.target import Adjacency, Unit

# The curves that follow from an adjacency, constants, parts, and the unit where that is a person.
Curves = Callable[[Adjacency, Constants, tuple[Statement, ...], Unit | None], tuple[Curve, ...]]


@dataclass(frozen=True)
class Rule:
    """What a record of this rule holds, what it rests on, and the curves that follow.

    Attributes:
        curves: computes them; ``DeclarationError`` where the constants contradict each other.
        constants: all of them, each with its check.
        optional: constants that only some records have.
        parts: the least and the most number of parts.
    """

    curves: Curves
    constants: fields.Fields
    optional: fields.Fields = field(default_factory=dict)
    parts: tuple[float, float] = (0, 0)


def _of_constants(curves: Callable[[Constants], tuple[Curve, ...]]) -> Curves:
    return lambda adjacency, c, parts, unit: curves(c)


_ROWS = {"num_rows": fields.is_count}


def _conjugate_rule(family: str, constants: fields.Fields) -> Rule:
    return Rule(lambda adjacency, c, parts, unit: (conjugate_points(family, adjacency, c),), constants)


RULES: Mapping[str, Rule] = {
    "posterior.strongly_log_concave": Rule(
        _of_constants(mechanisms.strongly_log_concave_curves),
        {"sensitivity": fields.is_bound, "strong_convexity": fields.is_positive},
        optional=_ROWS,
    ),
    "posterior.bounded_gradient": Rule(
        _of_constants(mechanisms.bounded_gradient_curves),
        {"gradient_bound": fields.is_bound, "prior_strong_convexity": fields.is_positive},
        optional=_ROWS,
    ),
    "posterior.beta_binomial": _conjugate_rule("beta_binomial", fields.BETA_BINOMIAL),
    "posterior.dirichlet_categorical": _conjugate_rule("dirichlet_categorical", fields.DIRICHLET_CATEGORICAL),
    "posterior.gamma_poisson": _conjugate_rule("gamma_poisson", fields.GAMMA_POISSON),
    "noise.laplace": Rule(_of_constants(mechanisms.laplace_curves), fields.LAPLACE),
    "noise.gaussian": Rule(_of_constants(mechanisms.gaussian_curves), fields.GAUSSIAN),
    "langevin": Rule(langevin_curves, fields.LANGEVIN, optional=fields.LANGEVIN_OPTIONAL),
    "average": Rule(average_curves, fields.AVERAGE, optional=fields.KEPT, parts=(1, 1)),
    "composition": Rule(
        lambda adjacency, c, parts, unit: composition_curves(c, parts),
        fields.COMPOSITION,
        parts=(1, math.inf),
    ),
    "group": Rule(
        lambda adjacency, c, parts, unit: group_curves(c, parts),
        {"rows": fields.is_count},
        parts=(1, 1),
    ),
    "adaptive": Rule(
        lambda adjacency, c, parts, unit: adaptive_curves(c, parts),
        {"budget": fields.is_positive},
        parts=(0, math.inf),
    ),
}


_TOLERANCE = 1e-9
# Squares of numbers below this leave the normal floats, and bounds of them are rounded up by more.
_TINY = 1e-150
_STATEMENT = {
    "adjacency": one_of("replace_one", "add_remove", "zero_out"),
    "curves": some(lambda curve: isinstance(curve, Mapping)),
    "argument": lambda argument: isinstance(argument, Mapping),
    "parts": lambda parts: isinstance(parts, tuple),
    "mechanism": none_or(is_text),
}
# Of statements whose unit is a person.
_UNIT = {"unit": record_of({"name": is_string, "rows": is_count})}
_ARGUMENT = {
    "theorem": is_text,
    "assumptions": some(is_string),
    "constants": lambda constants: isinstance(constants, Mapping),
    "rule": is_text,
}


@dataclass(frozen=True)
class Verification:
    """Whether the numbers of a statement follow from its constants; truthy if they do."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


def verify(record: Constants) -> Verification:
    """Check ``Statement.to_dict()`` output, also after a JSON round trip; never raises.

    The record has the fields of its rule, quotes every assumption that the rule's theorem needs, word by
    word, and each of its curves follows from its constants and parts under its adjacency. That the
    assumptions themselves are true (the constants right, the chain run as declared) numbers cannot show.
    """

    try:
        read = unplain(record)
        _check(read)
        names = _mechanisms(read)
        if len(set(names)) < len(names):
            raise DeclarationError("one run is counted twice: its statements do not compose.")
    except RecursionError:
        return Verification(False, "the record is nested too deeply.")
    except (PrivateMCMCError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        return Verification(False, str(error))
    return Verification(True, f"rule {read['argument']['rule']!r}: every curve follows from the constants.")


def _check(record: Constants) -> None:
    """Raise ``DeclarationError`` with the reason unless the record, which is ``unplain``, is sound."""
    check_fields("the statement", record, _STATEMENT, _UNIT)
    argument, adjacency, parts = record["argument"], record["adjacency"], record["parts"]
    check_fields("the argument", argument, _ARGUMENT)
    name, constants = argument["rule"], argument["constants"]
    if name not in RULES:
        raise DeclarationError(f"no function is known for the rule {name!r}.")
    rule = RULES[name]
    check_fields(f"rule {name!r}", constants, rule.constants, rule.optional)
    if not rule.parts[0] <= len(parts) <= rule.parts[1]:
        raise DeclarationError(f"rule {name!r}: {len(parts)} parts.")
    for index, part in enumerate(parts):
        try:
            _check(part)
        except DeclarationError as error:
            raise DeclarationError(f"part {index}: {error}") from error
        if part["adjacency"] != adjacency:
            raise DeclarationError(f"part {index} speaks of adjacency {part['adjacency']!r}.")
    unit = _checked_unit(record)
    said = argument["theorem"], argument["assumptions"]
    try:
        check_words(name, adjacency, constants, len(parts), unit, said)
        with warnings.catch_warnings():
            # Extreme constants may overflow on the way; what comes out is compared all the same.
            warnings.simplefilter("ignore", RuntimeWarning)
            found = rule.curves(adjacency, constants, tuple(map(Statement.from_dict, parts)), unit)
            wanted = [unplain(plain(curve.to_dict())) for curve in found]
    except (PrivateMCMCError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise DeclarationError(
            f"rule {name!r}: the constants are incomplete or contradict each other ({error})."
        ) from error
    if len(record["curves"]) != len(wanted):
        raise DeclarationError(f"rule {name!r}: the constants give {len(wanted)} curves.")
    for curve, other in zip(record["curves"], wanted, strict=True):
        if not _same(curve, other):
            raise DeclarationError(f"rule {name!r}: the constants do not give the curve {curve}.")


def _checked_unit(record: Constants) -> Unit | None:
    """What the record protects if that is no row: by all its parts too."""
    unit = Unit(**record["unit"]) if "unit" in record else None
    for index, part in enumerate(record["parts"]):
        own = Unit(**part["unit"]) if "unit" in part else None
        if unit is not None and own is not None and unit.name == own.name and own.rows <= unit.rows:
            continue
        if unit is not None or own is not None:
            raise DeclarationError(f"part {index} protects another unit.")
    return unit


def _mechanisms(record: Constants) -> list[str]:
    own = [] if record["mechanism"] is None else [record["mechanism"]]
    return own + [name for part in record["parts"] for name in _mechanisms(part)]


def _same(found: object, wanted: object) -> bool:
    if isinstance(found, bool) or isinstance(wanted, bool):
        return False
    if isinstance(wanted, Mapping):
        return (
            isinstance(found, Mapping)
            and found.keys() == wanted.keys()
            and all(_same(found[key], wanted[key]) for key in wanted)
        )
    if isinstance(wanted, tuple):
        return isinstance(found, tuple) and len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(wanted, float) and isinstance(found, (int, float)):
        # Of every field of a curve the larger number is the weaker claim.
        tiny = 0 <= wanted <= found <= _TINY
        return found == wanted or tiny or math.isclose(found, wanted, rel_tol=_TOLERANCE, abs_tol=0.0)
    return bool(found == wanted)


set_check(verify)
