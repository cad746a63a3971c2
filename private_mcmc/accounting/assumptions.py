"""What statements say in words: a function of rule, adjacency, unit and constants.

Statements are written from it, and records are compared with it, to the letter, when they are verified.

A rule whose numbers do not show the adjacency that they are for quotes ``RELATION``, so that a record
with another adjacency written into it has another sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants
from private_mcmc.schedule import BatchScheme
from private_mcmc.target import Adjacency, Unit


class Words(NamedTuple):
    """What a statement says: the theorem used, and the sentences that it rests on, in order."""

    theorem: str
    lines: tuple[str, ...]


RELATION: Mapping[Adjacency, str] = {
    "replace_one": "the numbers are for one row replaced by another; the number of rows is public",
    "add_remove": "the numbers are for one row added or removed; the number of rows is private",
    "zero_out": "the numbers are for one slot emptied: it keeps its place and adds exactly 0 to every sum",
}

NOT_PRIVATE = "NOT PRIVATE to anyone who knows the seed, which the caller gave"
EVERY_POTENTIAL = "the constants hold for every potential of the row domain"
COUPLING = (
    "two chains on adjacent data that share start and noise stay within the synchronous-coupling distance of "
    "each other surely (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7)"
)
_CHAIN = (
    "data enter the potential only through the clipped rows",
    "the start is drawn from a law that does not depend on the data",
    "the chain's noise is exactly Gaussian, independent of the data and never reused",
)
_BATCHES: Mapping[BatchScheme, str] = {
    "poisson": "each row enters a batch independently with the declared probability",
    "fixed": "every batch is a uniformly drawn subset of the declared size, independent of the others",
}
# 9e-10, over the 2u√p by which float64 moves two steps apart: ``sensitivity.rounding_box``.
_ROUNDED = "rounding after the sum moves a step by at most 1e-09 of its sensitivity, "
_BOX = "|θ|_∞ + 4γ|∇U|_∞ ≤ 4.05e6 γΔ/√p in whitened coordinates"
PERSONS = "what is called a row here is "
_PATH = "path of Gaussian mechanisms: m² = Σ γΔ²/2 (Bertazzi, Johnston, Roberts, Durmus, Thm 5.4)"


def of_persons(unit: Unit) -> str:
    """What makes a statement one of persons: its adjacency and every sentence of it speak of them."""
    return (
        f"{PERSONS}{unit}: further rows of a person are left out by a rule that sees that person's rows alone"
    )


def no_more_rows(rows: int | str) -> str:
    """What constants that name a number of rows rest on where the adjacency hides that number."""
    return f"no data set has more than n = {rows} rows"


def words_of(
    rule: str, adjacency: Adjacency, c: Constants, parts: int = 0, unit: Unit | None = None
) -> Words:
    """What a statement of this rule says, with so many parts."""
    if rule == "langevin":
        theorem, lines = _langevin(adjacency, c)
    elif rule == "average":
        theorem, lines = _average(adjacency, c)
    elif rule == "composition":
        theorem = f"composition of {parts} independent mechanisms (Dong, Roth, Su 2022)"
        lines = ("the mechanisms use independent randomness and were fixed in advance",)
    elif rule in _NOISE:
        theorem, norm = _NOISE[rule]
        moved = f"two values on adjacent data differ by at most the sensitivity in {norm}"
        lines = (f"{c['what']}: {moved}", RELATION[adjacency])
    else:
        theorem, *said = _SIMPLE[rule]
        lines = (*said, RELATION[adjacency])
    own = () if unit is None else (of_persons(unit),)
    return Words(theorem, tuple(dict.fromkeys((*own, *lines))))


def check_words(
    rule: str,
    adjacency: Adjacency,
    c: Constants,
    parts: int,
    unit: Unit | None,
    said: tuple[str, Sequence[str]],
) -> None:
    """Raise ``DeclarationError`` unless ``said``, a theorem and sentences, is what such a statement says.

    Beside these a statement may say that its seed was given, and how many rows there are at most where the
    adjacency hides that.
    """
    theorem, wanted = words_of(rule, adjacency, c, parts, unit)
    given = list(said[1])
    if given[:1] == [NOT_PRIVATE]:
        del given[0]
    for place, line in enumerate(wanted):
        if given[place : place + 1] != [line]:
            raise DeclarationError(f"without the assumption {line!r} in its place it cannot be verified.")
    more = given[len(wanted) :]
    bound = _AT_MOST.fullmatch(more[0]) if more and adjacency == "add_remove" else None
    counts = {c[name] for name in ("num_rows", "n") if name in c}
    if bound is not None and more[0] not in wanted and counts <= {int(bound[1])}:
        del more[:1]
    if more:
        raise DeclarationError(f"it says {more[0]!r}, which does not follow: it cannot be verified.")
    if said[0] != theorem:
        raise DeclarationError(f"the theorem is {theorem!r}, and not {said[0]!r}: it cannot be verified.")


_AT_MOST = re.compile(re.escape(no_more_rows("#")).replace("\\#", r"(\d{1,15})"))

_EXACT = ("the constants hold for every data set of the row domain", "the draw is exact")
_HOCKEY = "exact hockey-stick divergence of conjugate posteriors, maximised over all data sets and neighbours"
_CONJUGATE = ("the posterior is conjugate", "every row obeys its domain", "the draw is exact")
# Theorem and sentences of rules that quote the relation beside them.
_SIMPLE: Mapping[str, tuple[str, ...]] = {
    "posterior.strongly_log_concave": (
        "strongly log-concave posterior (Gopi, Lee, Liu 2022)",
        *_EXACT,
    ),
    "posterior.bounded_gradient": (
        "bounded data gradient, log-concave prior (Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1)",
        *_EXACT,
    ),
    "posterior.beta_binomial": (f"Beta-Binomial: {_HOCKEY}", *_CONJUGATE),
    "posterior.dirichlet_categorical": (f"Dirichlet-categorical: {_HOCKEY}", *_CONJUGATE),
    "posterior.gamma_poisson": (f"Gamma-Poisson: {_HOCKEY}", *_CONJUGATE),
    "adaptive": (
        "fully adaptive composition under a Gaussian DP budget (Smith, Thakurta 2022)",
        "the budget was fixed before the first stage",
        "each stage holds for every earlier output",
    ),
}
_NOISE = {
    "noise.laplace": ("Laplace mechanism (Dwork, McSherry, Nissim, Smith 2006)", "L1"),
    "noise.gaussian": ("Gaussian mechanism (Dong, Roth, Su 2022)", "L2"),
}


def _langevin(adjacency: Adjacency, c: Constants) -> tuple[str, tuple[str, ...]]:
    """What the bounds of a run rest on."""
    found = [_of_bound(kind, adjacency, c) for kind in c["bounds"]]
    lines = [*_of_chain(adjacency, c), *(line for _, each in found for line in each)]
    return "; and ".join(dict.fromkeys(theorem for theorem, _ in found)), _capped(adjacency, c, lines)


def _of_bound(kind: str, adjacency: Adjacency, c: Constants) -> tuple[str, tuple[str, ...]]:
    """The theorem of one bound of a run's states, and what it needs beside what all of them do."""
    if kind == "hidden":
        theorem = "shifted interpolation (Bok, Su, Altschuler 2024) of steps that keep chains together"
        return theorem, (EVERY_POTENTIAL,)
    if kind == "box path":
        theorem = "path of Gaussian mechanisms, rows in a box: m² = Σ_k γ_k²w² Σ_j (2M_jj C_j)²/S_jj"
        return theorem, ("every coordinate of a row's gradient is clipped apart, at its declared bound",)
    if kind == "path" and c["release"] == "path":
        return _PATH, ()
    if kind == "path":
        return f"{_PATH}, charged for hidden states too: {_expansion(c)}", ()
    if c["batch"] is None:
        raise DeclarationError("all rows are used in every step: no batch is sampled.")
    theorem = "Poisson-sampled Gaussian steps" + " under replacement" * (adjacency == "replace_one")
    if c["batch"]["scheme"] == "fixed":
        theorem = "Gaussian steps on batches without replacement (Balle, Barthe, Gaboardi 2018)"
    drawn = _BATCHES[c["batch"]["scheme"]], "which rows were drawn stays hidden"
    return f"{theorem}, composed by their privacy loss", drawn


def _expansion(c: Constants) -> str:
    """Why no shorter bound was found."""
    if not c["smoothness"] < math.inf:
        return "no potential is proved to be convex and smooth"
    if not c["strong_convexity"] > 0:
        return "no strong convexity of the potential is proved"
    longest = max(c["step_size"]) if isinstance(c["step_size"], tuple) else c["step_size"]
    if not longest * c["smoothness"] < 2:
        return f"the step size {longest:g} is not below 2/L = {2 / c['smoothness']:g}"
    return "no contraction that is proved helps here"


def _average(adjacency: Adjacency, c: Constants) -> tuple[str, tuple[str, ...]]:
    """What noised averages rest on."""
    joint = f"all in their units move by at most {c['joint']:.12g} in {c['norm']}"
    lines = [f"where each value moves by at most its unit, {joint}", RELATION[adjacency]]
    lines += _of_chain(adjacency, c)
    lines += [] if c["batch"] is None else [_BATCHES[c["batch"]["scheme"]]]
    if any(slope > 0 and slope * c["distance"] < limit for slope, limit, _ in c["values"]):
        lines += [COUPLING, EVERY_POTENTIAL]
    theorem = "noise on averages of coupled chains (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7)"
    return theorem, _capped(adjacency, c, lines)


def _of_chain(adjacency: Adjacency, c: Constants) -> list[str]:
    # A replaced row counts twice in the sensitivity; the two kinds of presence have equal numbers.
    relation = [] if adjacency == "replace_one" else [RELATION[adjacency]]
    rounded = f"{_ROUNDED}as it does while {_BOX}"
    if "within" in c:
        rounded = (
            f"rounding after the sum moves a step by at most {c['rounding']:.3g} of its sensitivity, because "
            f"states are kept in |θ|_∞ ≤ {c['within']:.12g} in whitened coordinates"
        )
    elif c.get("release") == "path":
        rounded = f"{_ROUNDED}because every coordinate of the whitened gradient is clamped so that {_BOX}"
    return [*_CHAIN, *relation, rounded]


def _capped(adjacency: Adjacency, c: Constants, lines: list[str]) -> tuple[str, ...]:
    return (*lines, no_more_rows(c["num_rows"])) if adjacency == "add_remove" else tuple(lines)
