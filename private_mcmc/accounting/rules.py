"""Checks statements: each is made again from its record by the function that makes such statements."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from private_mcmc.accounting import mechanisms
from private_mcmc.accounting.conjugate import FAMILIES, posterior_conjugate
from private_mcmc.accounting.langevin import average_again, langevin_again
from private_mcmc.accounting.statement import (
    NOT_PRIVATE,
    Argument,
    Statement,
    no_more_rows,
    of_unit,
    set_check,
)
from private_mcmc.errors import DeclarationError, PrivateMCMCError
from private_mcmc.records import Constants


def _alone(make: Callable[..., Statement], statement: Statement) -> Statement:
    """That of a mechanism without parts, of a person in the place of a row where there is a unit."""
    made = make(adjacency=statement.adjacency, **statement.argument.constants)
    return of_unit(made, statement.unit)


# What makes a statement of each rule again, from constants, parts, adjacency and unit.
RULES: Mapping[str, Callable[[Statement], Statement]] = {
    "posterior.strongly_log_concave": partial(_alone, mechanisms.posterior_strongly_log_concave),
    "posterior.bounded_gradient": partial(_alone, mechanisms.posterior_bounded_gradient),
    **{f"posterior.{name}": partial(_alone, partial(posterior_conjugate, name)) for name in FAMILIES},
    "noise.laplace": partial(_alone, mechanisms.laplace),
    "noise.gaussian": partial(_alone, mechanisms.gaussian),
    "langevin": langevin_again,
    "average": average_again,
    "composition": lambda s: mechanisms.compose(*s.parts),
    "adaptive": lambda s: mechanisms.adaptive(
        adjacency=s.adjacency, stages=s.parts, unit=s.unit, **s.argument.constants
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

    A statement is made again from the record's constants and parts: it has these constants, no others, every
    curve, and says the same, word by word. That the assumptions themselves are true (the constants right, the
    chain run as declared) numbers cannot show.
    """
    try:
        statement = Statement.from_dict(record)
        _check(statement)
    except RecursionError:
        return Verification(False, "the record is nested too deeply.")
    except (PrivateMCMCError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
        return Verification(False, str(error))
    return Verification(True, f"rule {statement.argument.rule!r}: every curve follows from the constants.")


def _check(statement: Statement) -> None:
    """Raise ``DeclarationError`` with the reason unless the statement is sound."""
    argument, name = statement.argument, statement.argument.rule
    if name not in RULES:
        raise DeclarationError(f"no function is known for the rule {name!r}.")
    for index, part in enumerate(statement.parts):
        try:
            _check(part)
        except DeclarationError as error:
            raise DeclarationError(f"part {index}: {error}") from error
    try:
        with warnings.catch_warnings():
            # Extreme constants may overflow on the way; what comes out is compared all the same.
            warnings.simplefilter("ignore", RuntimeWarning)
            again = RULES[name](statement)
    except (PrivateMCMCError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise DeclarationError(
            f"rule {name!r}: the constants are incomplete or contradict each other ({error})."
        ) from error
    wanted = again.argument
    _check_words(statement, wanted)
    for what in ("rule", "constants", "adjacency", "unit", "parts"):
        found, due = (argument, wanted) if what in ("rule", "constants") else (statement, again)
        if getattr(found, what) != getattr(due, what):
            raise DeclarationError(f"rule {name!r}: its {what} are not those of such a statement.")
    if not _same([each.to_dict() for each in statement.curves], [each.to_dict() for each in again.curves]):
        raise DeclarationError(f"rule {name!r}: the constants do not give these curves.")


_AT_MOST = re.compile(re.escape(no_more_rows("#")).replace("\\#", r"(\d{1,15})"))


def _check_words(statement: Statement, wanted: Argument) -> None:
    """Raise ``DeclarationError`` unless theorem and assumptions are those ``wanted``.

    Beside these a statement may say that its seed was given, and how many rows there are at most where the
    adjacency hides that.
    """
    argument = statement.argument
    lines = [line for line in argument.assumptions if line != NOT_PRIVATE]
    bound = _AT_MOST.fullmatch(lines[-1]) if len(lines) == len(wanted.assumptions) + 1 else None
    counts = {argument.constants[name] for name in ("num_rows", "n") if name in argument.constants}
    hidden = statement.adjacency == "add_remove" and lines[-1] not in wanted.assumptions
    if bound and hidden and counts <= {int(bound[1])}:
        del lines[-1]
    for said, due in zip_longest((argument.theorem, *lines), (wanted.theorem, *wanted.assumptions)):
        if said != due:
            raise DeclarationError(f"it says {said!r} in the place of {due!r}: it cannot be verified.")


def _same(found: object, wanted: object) -> bool:
    """Whether two curves have equal fields, numbers up to what two machines round."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return found.keys() == wanted.keys() and all(_same(found[key], wanted[key]) for key in wanted)
    if isinstance(found, (tuple, list)) and isinstance(wanted, (tuple, list)):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    if type(found) in (int, float) and isinstance(wanted, float):
        # Of every field of a curve the larger number is the weaker claim.
        tiny = 0 <= wanted <= found <= _TINY  # type: ignore[operator]
        return tiny or math.isclose(found, wanted, rel_tol=_TOLERANCE, abs_tol=0.0)  # type: ignore[arg-type]
    return type(found) is type(wanted) and found == wanted


set_check(verify)
