"""Checks statements: a record goes in, its curves are computed from its constants, and compared."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from private_mcmc.accounting import fields, mechanisms
from private_mcmc.accounting.assumptions import check_words
from private_mcmc.accounting.composition import adaptive_curves, composition_curves
from private_mcmc.accounting.conjugate import conjugate_points
from private_mcmc.accounting.curves.curve import Curve
from private_mcmc.accounting.fields import check_fields
from private_mcmc.accounting.langevin.langevin_statement import average_curves, langevin_curves
from private_mcmc.accounting.statement import Statement, set_check
from private_mcmc.errors import DeclarationError, PrivateMCMCError
from private_mcmc.records import Constants
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
        _of_constants(mechanisms.posterior_curves),
        {"sensitivity": fields.is_bound, "strong_convexity": fields.is_positive},
        optional=_ROWS,
    ),
    "posterior.bounded_gradient": Rule(
        _of_constants(mechanisms.posterior_curves),
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
    "composition": Rule(lambda adjacency, c, parts, unit: composition_curves(parts), {}, parts=(1, math.inf)),
    "adaptive": Rule(
        lambda adjacency, c, parts, unit: adaptive_curves(c, parts),
        {"budget": fields.is_positive},
        parts=(0, math.inf),
    ),
}


_TOLERANCE = 1e-9
# Squares of numbers below this leave the normal floats, and bounds of them are rounded up by more.
_TINY = 1e-150


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
        statement = Statement.from_dict(record)
        _check(statement)
    except RecursionError:
        return Verification(False, "the record is nested too deeply.")
    except (PrivateMCMCError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        return Verification(False, str(error))
    return Verification(True, f"rule {statement.argument.rule!r}: every curve follows from the constants.")


def _check(statement: Statement) -> None:
    """Raise ``DeclarationError`` with the reason unless the statement is sound."""
    argument, parts = statement.argument, statement.parts
    name, constants = argument.rule, argument.constants
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
    said = argument.theorem, argument.assumptions
    try:
        check_words(name, statement.adjacency, constants, len(parts), statement.unit, said)
        with warnings.catch_warnings():
            # Extreme constants may overflow on the way; what comes out is compared all the same.
            warnings.simplefilter("ignore", RuntimeWarning)
            wanted = rule.curves(statement.adjacency, constants, parts, statement.unit)
    except (PrivateMCMCError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise DeclarationError(
            f"rule {name!r}: the constants are incomplete or contradict each other ({error})."
        ) from error
    if len(statement.curves) != len(wanted):
        raise DeclarationError(f"rule {name!r}: the constants give {len(wanted)} curves.")
    for curve, other in zip(statement.curves, wanted, strict=True):
        if not _same(curve.to_dict(), other.to_dict()):
            raise DeclarationError(f"rule {name!r}: the constants do not give the curve {curve}.")


def _same(found: object, wanted: object) -> bool:
    """Whether two curves have equal fields, numbers up to what two machines round."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return found.keys() == wanted.keys() and all(_same(found[key], wanted[key]) for key in wanted)
    if isinstance(found, (tuple, list)) and isinstance(wanted, (tuple, list)):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(found, (int, float)) and isinstance(wanted, float):
        # Of every field of a curve the larger number is the weaker claim.
        tiny = 0 <= wanted <= found <= _TINY
        return found == wanted or tiny or math.isclose(found, wanted, rel_tol=_TOLERANCE, abs_tol=0.0)
    return found == wanted


set_check(verify)
