"""The second derivation of every curve: from a record, by code that shares nothing with the accountant.

A rule's function takes the adjacency, the constants and the parts of a statement and returns every curve that
they justify, as plain records. Closed forms of the accountant are recomputed by recursion.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence

from private_mcmc.records import Constants, Record, unplain
from tests.accounting.oracle import conjugate, langevin
from tests.accounting.oracle.constants import Parts


def _gaussian(m: float) -> Record:
    return {"kind": "gaussian", "m": float(m)}


def _laplace(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    moved = c["dim"] * c["grid"] if c["grid"] else 0.0
    needed = (c["sensitivity"] + moved) / c["scale"]
    if not needed <= c["epsilon"] * (1 + 1e-12):
        return []
    return [{"kind": "pure", "level": float(c["epsilon"])}]


def _composition(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    found = []
    for choice in itertools.product(*(part["curves"] for part in parts)):
        flat = [
            leaf for curve in choice for leaf in (curve["parts"] if curve["kind"] == "product" else (curve,))
        ]
        squares = [leaf["m"] ** 2 for leaf in flat if leaf["kind"] == "gaussian"]
        merged = [_gaussian(math.sqrt(sum(squares)))] if squares else []
        merged += [leaf for leaf in flat if leaf["kind"] not in ("gaussian", "sampled")]
        merged += _counted_together([leaf for leaf in flat if leaf["kind"] == "sampled"])
        found.append(merged[0] if len(merged) == 1 else {"kind": "product", "parts": tuple(merged)})
    return found


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


RULES: dict[str, Callable[[str, Constants, Parts], list[Record]]] = {
    "posterior.strongly_log_concave": lambda adjacency, c, parts: [
        _gaussian(c["sensitivity"] / c["strong_convexity"] ** 0.5)
    ],
    "posterior.bounded_gradient": lambda adjacency, c, parts: [
        _gaussian(2 * c["gradient_bound"] / c["prior_strong_convexity"] ** 0.5)
    ],
    "posterior.beta_binomial": conjugate.beta_binomial,
    "posterior.dirichlet_categorical": conjugate.dirichlet_categorical,
    "posterior.gamma_poisson": conjugate.gamma_poisson,
    "noise.laplace": _laplace,
    "noise.gaussian": lambda adjacency, c, parts: [
        _gaussian((c["sensitivity"] ** 2 / c["scale"] ** 2) ** 0.5)
    ],
    "langevin": langevin.langevin,
    "average": langevin.average,
    "composition": _composition,
    "adaptive": _adaptive,
}

_TOLERANCE, _TINY = 1e-9, 1e-150


def agrees(record: Constants) -> bool:
    """Whether every curve of a record, and of its parts, follows from its constants by this derivation.

    ``record``: what ``Statement.to_dict`` gave, also after a JSON round trip. Fields and sentences are not
    looked at.
    """
    return _agrees(unplain(record))


def _agrees(record: Constants) -> bool:
    argument, unit = record["argument"], record.get("unit")
    constants = (
        argument["constants"] if unit is None else {**argument["constants"], "rows_of_unit": unit["rows"]}
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            wanted = RULES[argument["rule"]](record["adjacency"], constants, record["parts"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return False
    return all(map(_agrees, record["parts"])) and all(
        any(_same(curve, candidate) for candidate in wanted) for curve in record["curves"]
    )


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
