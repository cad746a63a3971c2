"""Checking a statement: its numbers recomputed from its constants alone, by code that did not produce it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from private_mcmc.accounting.assumptions import COUPLING, PERSONS, exactly, missing, of_persons
from private_mcmc.accounting.recompute.record_fields import (
    check_fields,
    is_count,
    is_string,
    is_text,
    none_or,
    one_of,
    record_of,
    some,
)
from private_mcmc.accounting.recompute.rules import RULES
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants, Record, unplain
from private_mcmc.target import Unit

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
    word, and each of its curves follows from its constants and parts under its adjacency. One that an earlier
    version wrote without what is needed now is not verified; the reason says what. That the assumptions
    themselves are true (the constants right, the chain run as declared) numbers cannot show.
    """

    try:
        read = unplain(record)
        _check(read)
        _check_mechanisms(read)
    except RecursionError:
        return Verification(False, "the record is nested too deeply.")
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        return Verification(False, str(error))
    return Verification(True, f"rule {read['argument']['rule']!r}: every curve follows from the constants.")


def _check(record: Constants) -> None:
    """Raise ``DeclarationError`` with the reason unless the record, which is ``unplain``, is sound."""
    check_fields("the statement", record, _STATEMENT, _UNIT)
    argument, adjacency, parts = record["argument"], record["adjacency"], record["parts"]
    check_fields("the argument", argument, _ARGUMENT)
    name, constants = argument["rule"], argument["constants"]
    if name not in RULES:
        raise DeclarationError(f"no recomputation is known for the rule {name!r}.")
    rule = RULES[name]
    check_fields(f"rule {name!r}", constants, rule.constants, rule.later)
    if name != "average" and COUPLING in argument["assumptions"]:
        raise DeclarationError(
            f"rule {name!r} does not hold the constants of the coupled chains: it cannot be verified."
        )
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
    try:
        lost = missing(rule.lines(adjacency, constants), argument["assumptions"])
        constants = constants if unit is None else {**constants, "rows_of_unit": unit.rows}
        wanted = [] if lost is not None else _quietly(rule.curves, adjacency, constants, parts)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise DeclarationError(
            f"rule {name!r}: the constants are incomplete or contradict each other ({error!r})."
        ) from error
    if lost is not None:
        raise DeclarationError(f"rule {name!r}: without the assumption {lost!r} it cannot be verified.")
    for curve in record["curves"]:
        if not any(_same(curve, candidate) for candidate in wanted):
            raise DeclarationError(f"rule {name!r}: the constants do not give the curve {curve}.")


def _checked_unit(record: Constants) -> Unit | None:
    """What the record protects if that is no row: said in a sentence, and by all its parts."""
    unit = Unit(**record["unit"]) if "unit" in record else None
    if unit is None:
        if any(line.startswith(PERSONS) for line in record["argument"]["assumptions"]):
            raise DeclarationError("a statement of persons without its unit cannot be verified.")
    elif lost := missing(exactly(of_persons(unit)), record["argument"]["assumptions"]):
        raise DeclarationError(f"without the assumption {lost!r} it cannot be verified.")
    for index, part in enumerate(record["parts"]):
        own = Unit(**part["unit"]) if "unit" in part else None
        if unit is not None and own is not None and unit.name == own.name and own.rows <= unit.rows:
            continue
        if unit is not None or own is not None:
            raise DeclarationError(f"part {index} protects another unit.")
    return unit


def _quietly(recompute: Callable[..., list[Record]], *arguments: object) -> list[Record]:
    """Extreme constants may overflow on the way; what comes out is compared all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found: list[Record] = recompute(*arguments)
        return found


def _check_mechanisms(record: Constants) -> None:
    names = _mechanisms(record)
    if len(set(names)) < len(names):
        raise DeclarationError("one run is counted twice: its statements do not compose.")


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
