"""Checking a statement: its numbers recomputed from its constants alone, by code that did not produce it.

A rule's recomputation takes the adjacency, the constants and the parts of a statement and returns every curve
that they justify, as plain records. Closed forms of the accountant are recomputed by recursion.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from private_mcmc.accounting import assumptions as quoted
from private_mcmc.accounting.assumptions import COUPLING, PERSONS, exactly, missing, of_persons
from private_mcmc.accounting.conjugate import conjugate_points
from private_mcmc.accounting.recompute import constants as fields
from private_mcmc.accounting.recompute import langevin as rules_langevin
from private_mcmc.accounting.recompute.constants import (
    check_fields,
    is_count,
    is_string,
    is_text,
    none_or,
    one_of,
    record_of,
    some,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants, Parts, Record, unplain
from private_mcmc.target import Adjacency, Unit, check_adjacency


def _gaussian(m: float) -> Record:
    return {"kind": "gaussian", "m": float(m)}


def _pure(level: float) -> Record:
    return {"kind": "pure", "level": float(level)}


def _concentrated(rho: float) -> Record:
    return {"kind": "concentrated", "rho": float(rho)}


def _laplace(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    needed = (c["sensitivity"] + c["dim"] * c["grid"]) / c["scale"]
    if not needed <= c["epsilon"] * (1 + 1e-12):
        return []
    single = [{"kind": "laplace", "level": float(c["epsilon"])}] if c["dim"] == 1 and c["grid"] == 0 else []
    return [_pure(c["epsilon"]), *single]


def _noise(sensitivity: float, scale: float, grid: float | None, entries: float) -> list[Record]:
    if grid is None:
        return [_gaussian((sensitivity**2 / scale**2) ** 0.5)]
    reach = sensitivity / scale + math.sqrt(entries) * grid / scale
    return [_concentrated(reach * reach / 2)]


def _second_moments(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    if c["adjacency"] != adjacency:
        return []
    squared = c["radius"] ** 4 * (2 if adjacency == "replace_one" and c["dim"] > 1 else 1)
    return _noise(math.sqrt(squared), c["noise_sd"], c["grid"], float(c["dim"]) ** 2)


def _composition(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    options = [part["curves"] for part in parts]
    found = []
    for indices in c["choices"]:
        if not all(index < len(curves) for curves, index in zip(options, indices, strict=True)):
            raise ValueError("a choice is of a curve that the part has")
        choice = [curves[index] for curves, index in zip(options, indices, strict=True)]
        failures = [curve["failure"] for curve in choice if curve["kind"] == "unless"]
        choice = [curve["inner"] if curve["kind"] == "unless" else curve for curve in choice]
        flat = [
            leaf for curve in choice for leaf in (curve["parts"] if curve["kind"] == "product" else (curve,))
        ]
        merged = []
        squares = sum(leaf["m"] ** 2 for leaf in flat if leaf["kind"] == "gaussian")
        rho = sum(leaf["rho"] for leaf in flat if leaf["kind"] == "concentrated")
        if any(leaf["kind"] == "gaussian" for leaf in flat):
            merged.append(_gaussian(math.sqrt(squares)))
        if any(leaf["kind"] == "concentrated" for leaf in flat):
            merged.append(_concentrated(rho))
        merged += [leaf for leaf in flat if leaf["kind"] not in ("gaussian", "concentrated", "sampled")]
        merged += _counted_together([leaf for leaf in flat if leaf["kind"] == "sampled"])
        whole = merged[0] if len(merged) == 1 else {"kind": "product", "parts": tuple(merged)}
        found.append({"kind": "unless", "inner": whole, "failure": sum(failures)} if failures else whole)
    return found


def _group(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    (part,) = parts
    scaled = [_for_rows(curve, c["rows"]) for curve in part["curves"]]
    return [curve for curve in scaled if curve is not None]


def _for_rows(curve: Constants, rows: int) -> Record | None:
    if curve["kind"] == "product":
        inner = tuple(_for_rows(leaf, rows) for leaf in curve["parts"])
        return None if None in inner else {"kind": "product", "parts": inner}
    powers = {"gaussian": ("m", 1), "pure": ("level", 1), "laplace": ("level", 1), "concentrated": ("rho", 2)}
    if curve["kind"] not in powers:
        return None
    name, power = powers[curve["kind"]]
    return {"kind": curve["kind"], name: float(rows**power * float(curve[name]))}


def _counted_together(leaves: Sequence[Record]) -> list[Record]:
    kept: list[Record] = []
    for leaf in leaves:
        same = [old for old in kept if all(old[key] == leaf[key] for key in ("pair", "rate", "ratio"))]
        if same:
            same[0]["steps"] += leaf["steps"]
        else:
            kept.append(dict(leaf))
    return kept


def _adaptive(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    levels = [[curve["m"] for curve in part["curves"] if curve["kind"] == "gaussian"] for part in parts]
    spent = sum(min(level, default=math.inf) ** 2 for level in levels)
    return [_gaussian(c["budget"])] if spent <= c["budget"] ** 2 else []


Lines = Callable[[Adjacency, Constants], tuple[quoted.Line, ...]]


@dataclass(frozen=True)
class Rule:
    """What a record of this rule holds, what it rests on, and the curves that follow.

    Attributes:
        curves: the recomputation.
        constants: all of them, each with its check.
        lines: the assumptions that the theorem needs, of an adjacency and constants.
        later: constants that older records lack.
        parts: the least and the most number of parts.
    """

    curves: Callable[[str, Constants, Parts], list[Record]]
    constants: fields.Fields
    lines: Lines
    later: fields.Fields = field(default_factory=dict)
    parts: tuple[float, float] = (0, 0)


def _related(*lines: str) -> Lines:
    """These, and what the numbers are for, where the numbers themselves do not show it."""
    return lambda adjacency, c: quoted.exactly(*lines, quoted.RELATION[adjacency])


def _plainly(*lines: str) -> Lines:
    """These alone: the numbers, or the parts, show the adjacency."""
    return lambda adjacency, c: quoted.exactly(*lines)


def _moved(norm: str) -> Lines:
    return lambda adjacency, c: quoted.exactly(quoted.moves(c["what"], norm), quoted.RELATION[adjacency])


def _of_rows(*lines: str) -> Lines:
    """The same of constants that name a number of rows."""

    def needed(adjacency: Adjacency, c: Constants) -> tuple[quoted.Line, ...]:
        bound = [quoted.no_more_rows(c["n"])] if adjacency == "add_remove" else []
        return quoted.exactly(*lines, quoted.RELATION[adjacency], *bound)

    return needed


_POSTERIOR = _related(quoted.EVERY_DATA_SET, quoted.EXACT_DRAW)
_CONJUGATE = _of_rows(quoted.CONJUGATE, quoted.IN_DOMAIN, quoted.EXACT_DRAW)
_STAGES = _related(quoted.BUDGET_FIRST, quoted.STAGES_HOLD)
_ROWS = {"num_rows": fields.is_count}


def _conjugate_rule(family: str, constants: fields.Fields) -> Rule:
    def curves(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
        return [conjugate_points(family, check_adjacency(adjacency), c).to_dict()]

    return Rule(curves, constants, _CONJUGATE)


RULES: Mapping[str, Rule] = {
    "posterior.bounded": Rule(
        lambda adjacency, c, parts: [_pure(c["range_b"]), _concentrated((c["range_b"] / 2) ** 2 / 2)],
        {"range_b": fields.is_bound},
        _POSTERIOR,
    ),
    "posterior.strongly_log_concave": Rule(
        lambda adjacency, c, parts: [_gaussian(c["sensitivity"] / c["strong_convexity"] ** 0.5)],
        {"sensitivity": fields.is_bound, "strong_convexity": fields.is_positive},
        _POSTERIOR,
        later=_ROWS,
    ),
    "posterior.bounded_gradient": Rule(
        lambda adjacency, c, parts: [_gaussian(2 * c["gradient_bound"] / c["prior_strong_convexity"] ** 0.5)],
        {"gradient_bound": fields.is_bound, "prior_strong_convexity": fields.is_positive},
        _POSTERIOR,
        later=_ROWS,
    ),
    "posterior.beta_binomial": _conjugate_rule("beta_binomial", fields.BETA_BINOMIAL),
    "posterior.dirichlet_categorical": _conjugate_rule("dirichlet_categorical", fields.DIRICHLET_CATEGORICAL),
    "posterior.gamma_poisson": _conjugate_rule("gamma_poisson", fields.GAMMA_POISSON),
    "noise.laplace": Rule(_laplace, fields.LAPLACE, _moved("L1")),
    "noise.gaussian": Rule(
        lambda adjacency, c, parts: _noise(c["sensitivity"], c["scale"], c["grid"], c["dim"]),
        fields.GAUSSIAN,
        _moved("L2"),
    ),
    "noise.second_moments": Rule(
        _second_moments, fields.SECOND_MOMENTS, _plainly(quoted.CLIPPED_RADIUS, quoted.ONE_DRAW)
    ),
    "langevin": Rule(
        rules_langevin.langevin, fields.LANGEVIN, quoted.of_langevin, later=fields.LANGEVIN_CLIPS
    ),
    "average": Rule(
        rules_langevin.average, fields.AVERAGE, quoted.of_average, later=fields.KEPT, parts=(1, 1)
    ),
    "composition": Rule(_composition, fields.COMPOSITION, _plainly(quoted.INDEPENDENT), parts=(1, math.inf)),
    "group": Rule(
        _group,
        {"rows": fields.is_count},
        lambda adjacency, c: quoted.exactly(quoted.at_most_rows(c["rows"])),
        parts=(1, 1),
    ),
    "adaptive": Rule(_adaptive, {"budget": fields.is_positive}, _STAGES, parts=(0, math.inf)),
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
    word, and each of its curves follows from its constants and parts under its adjacency. One that an earlier
    version wrote without what is needed now is not verified; the reason says what. That the assumptions
    themselves are true (the constants right, the chain run as declared) numbers cannot show.
    """

    try:
        read = unplain(record)
        _check(read)
        names = _mechanisms(read)
        if len(set(names)) < len(names):
            raise DeclarationError("one run is counted twice: its statements do not compose.")
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
        wanted: list[Record] = []
        if lost is None:
            with warnings.catch_warnings():
                # Extreme constants may overflow on the way; what comes out is compared all the same.
                warnings.simplefilter("ignore", RuntimeWarning)
                wanted = rule.curves(adjacency, constants, parts)
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
