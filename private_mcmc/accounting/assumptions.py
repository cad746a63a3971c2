"""What statements say in words: a function of rule, adjacency, constants and parts.

Statements are written from it, and records are compared with it, to the letter, when they are verified.

A rule whose numbers do not show the adjacency that they are for quotes ``RELATION``, so that a record
with another adjacency written into it has another sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants
from private_mcmc.schedule import BatchScheme
from private_mcmc.target import Adjacency, Unit

# The texts that one sentence may have: more than one where two machines may print a number as neighbours.
Line: TypeAlias = tuple[str, ...]


class Words(NamedTuple):
    """What a statement says: the theorem used, and the sentences that it rests on, in order."""

    theorem: str
    lines: tuple[Line, ...]


RELATION: Mapping[Adjacency, str] = {
    "replace_one": "the numbers are for one row replaced by another; the number of rows is public",
    "add_remove": "the numbers are for one row added or removed; the number of rows is private",
    "zero_out": "the numbers are for one slot emptied: it keeps its place and adds exactly 0 to every sum",
}

EVERY_DATA_SET = "the constants hold for every data set of the row domain"
EXACT_DRAW = "the draw is exact"
CONJUGATE = "the posterior is conjugate"
IN_DOMAIN = "every row obeys its domain"

CLIPPED_ROWS = "data enter the potential only through the clipped rows"
BOXED_ROWS = "every coordinate of a row's gradient is clipped apart, at its declared bound"
PUBLIC_START = "the start is drawn from a law that does not depend on the data"
GAUSSIAN_NOISE = "the chain's noise is exactly Gaussian, independent of the data and never reused"
EVERY_POTENTIAL = "the constants hold for every potential of the row domain"
POISSON = "each row enters a batch independently with the declared probability"
SUBSETS = "every batch is a uniformly drawn subset of the declared size, independent of the others"
HIDDEN_BATCHES = "which rows were drawn stays hidden"

COUPLING = (
    "two chains on adjacent data that share start and noise stay within the synchronous-coupling distance of "
    "each other surely (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7)"
)

INDEPENDENT = "the mechanisms use independent randomness and were fixed in advance"
NOT_PRIVATE = "NOT PRIVATE to anyone who knows the seed, which the caller gave"
BUDGET_FIRST = "the budget was fixed before the first stage"
STAGES_HOLD = "each stage holds for every earlier output"
BATCHES: Mapping[BatchScheme, tuple[str, ...]] = {
    "poisson": (POISSON,),
    "fixed": (SUBSETS,),
}


PERSONS = "what is called a row here is "


def of_persons(unit: Unit) -> str:
    """What makes a statement one of persons: its adjacency and every sentence of it speak of them."""
    return (
        f"{PERSONS}{unit}: further rows of a person are left out by a rule that sees that person's rows alone"
    )


def moves(what: str, norm: str) -> str:
    """What a noise statement rests on: ``norm`` is ``"L1"`` or ``"L2"``."""
    return f"{what}: two values on adjacent data differ by at most the sensitivity in {norm}"


def moved_together(norm: str, joint: float) -> str:
    """What noise on several values rests on, beyond the bound of each."""
    together = f"all in their units move by at most {joint:.12g} in {norm}"
    return f"where each value moves by at most its bound, {together}"


def at_most_rows(rows: int) -> str:
    """What group privacy rests on."""
    return f"a person has at most {rows} rows"


def no_more_rows(rows: int) -> str:
    """What constants that name a number of rows rest on where the adjacency hides that number."""
    return f"no data set has more than n = {rows} rows"


def public_rows(count: int) -> str:
    """What a plan that was shaped by public rows rests on."""
    return (
        f"the {count} rows that shaped the plan are public, and were chosen without the private ones "
        "(stated, not proved)"
    )


def rounding(release: object, shown: str) -> str:
    """How far rounding after the sum of rows may move a step: ``1e-9`` of its sensitivity.

    ``shown`` is the bound of ``|θ|_∞ + 4γ|∇U|_∞`` at which that holds, and on a path the limit at which
    the gradient is clamped to make it hold.
    """
    start = "rounding after the sum moves a step by at most 1e-09 of its sensitivity"
    if release == "path":
        return f"{start}, because every coordinate of the whitened gradient is clamped at {shown}"
    return f"{start}, as it does while |θ|_∞ + 4γ|∇U|_∞ ≤ {shown} in whitened coordinates"


def kept_within(share: float, half: float) -> str:
    """The same where hidden states are kept in a box."""
    return (
        f"rounding after the sum moves a step by at most {share:.3g} of its sensitivity, because states are "
        f"kept in |θ|_∞ ≤ {half:.12g} in whitened coordinates"
    )


PATH = "path of Gaussian mechanisms: m² = Σ γΔ²/2 (Bertazzi, Johnston, Roberts, Durmus, Thm 5.4)"
BOX = "path of Gaussian mechanisms, rows in a box: m² = Σ_k γ_k²w² Σ_j (2M_jj C_j)²/S_jj"
SHIFT = "shifted interpolation (Bok, Su, Altschuler 2024) of steps that keep chains together"
SAMPLED_PATH = "Poisson-sampled Gaussian steps, composed by their privacy loss"
SAMPLED_REPLACED = "Poisson-sampled Gaussian steps under replacement, composed by their privacy loss"
FIXED_PATH = (
    "Gaussian steps on batches without replacement (Balle, Barthe, Gaboardi 2018), composed by their privacy "
    "loss"
)
COUPLED = "noise on averages of coupled chains (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7)"


def words_of(rule: str, adjacency: Adjacency, c: Constants, parts: int = 0) -> Words:
    """What a statement of this rule says, with so many parts."""
    return _WORDS[rule](adjacency, c, parts)


def check_words(
    rule: str,
    adjacency: Adjacency,
    c: Constants,
    parts: int,
    unit: Unit | None,
    said: tuple[str, Sequence[str]],
) -> None:
    """Raise ``DeclarationError`` unless ``said``, a theorem and sentences, is what such a statement says.

    Beside these a statement may say that its seed was given, how many rows there are at most where the
    adjacency hides that, and that a plan was shaped by public rows.
    """
    theorem, lines = words_of(rule, adjacency, c, parts)
    given = list(said[1])
    if given[:1] == [NOT_PRIVATE]:
        del given[0]
    wanted = lines if unit is None else ((of_persons(unit),), *lines)
    for place, line in enumerate(wanted):
        if given[place : place + 1] == [] or given[place] not in line:
            raise DeclarationError(f"without the assumption {line[0]!r} in its place it cannot be verified.")
    more = given[len(wanted) :]
    counts = [c[name] for name in ("num_rows", "n") if name in c]
    bound = _AT_MOST.fullmatch(more[0]) if more and adjacency == "add_remove" else None
    if bound is not None and counts in ([], [int(bound[1])]) and more[0] not in given[: len(wanted)]:
        del more[0]
    if more and rule == "adaptive" and _PUBLIC.fullmatch(more[0]):
        del more[0]
    if more:
        raise DeclarationError(f"it says {more[0]!r}, which does not follow: it cannot be verified.")
    if said[0] != theorem:
        raise DeclarationError(f"the theorem is {theorem!r}, and not {said[0]!r}: it cannot be verified.")


_AT_MOST = re.compile(re.escape(no_more_rows(0)).replace("0", r"(\d{1,15})"))
_PUBLIC = re.compile(re.escape(public_rows(0)).replace("0", r"\d{1,15}"))


def _exactly(*texts: str) -> tuple[Line, ...]:
    return tuple((text,) for text in dict.fromkeys(texts))


def _related(theorem: str, *texts: str) -> Callable[[Adjacency, Constants, int], Words]:
    """These, and what the numbers are for."""
    return lambda adjacency, c, parts: Words(theorem, _exactly(*texts, RELATION[adjacency]))


def _conjugate(name: str) -> Callable[[Adjacency, Constants, int], Words]:
    theorem = (
        f"{name}: exact hockey-stick divergence of conjugate posteriors, maximised over all data sets and "
        "neighbours"
    )

    return _related(theorem, CONJUGATE, IN_DOMAIN, EXACT_DRAW)


def _laplace(adjacency: Adjacency, c: Constants, parts: int) -> Words:
    theorem = "Laplace mechanism (Dwork, McSherry, Nissim, Smith 2006)"
    return Words(theorem, _exactly(moves(c["what"], "L1"), RELATION[adjacency]))


def _gaussian(adjacency: Adjacency, c: Constants, parts: int) -> Words:
    theorem = "Gaussian mechanism (Dong, Roth, Su 2022)"
    if c["grid"] is not None:
        theorem = "discretised Gaussian mechanism (Canonne, Kamath, Steinke 2020)"
    return Words(theorem, _exactly(moves(c["what"], "L2"), RELATION[adjacency]))


def _group(adjacency: Adjacency, c: Constants, parts: int) -> Words:
    theorem = f"group privacy for {c['rows']} rows (Dong, Roth, Su 2022; Bun, Steinke 2016)"
    return Words(theorem, _exactly(at_most_rows(c["rows"])))


def _composition(adjacency: Adjacency, c: Constants, parts: int) -> Words:
    theorem = f"composition of {parts} independent mechanisms (Dong, Roth, Su 2022)"
    return Words(theorem, _exactly(INDEPENDENT))


def _langevin(adjacency: Adjacency, c: Constants, parts: int) -> Words:
    """What the bounds of a run rest on."""
    found = [_of_bound(kind, adjacency, c) for kind in c["bounds"]]
    lines = _of_chain(adjacency, c, _least_change(adjacency, c))
    lines += [(line,) for _, each in found for line in each]
    return Words("; and ".join(dict.fromkeys(theorem for theorem, _ in found)), _capped(adjacency, c, lines))


def _of_bound(kind: str, adjacency: Adjacency, c: Constants) -> tuple[str, tuple[str, ...]]:
    """The theorem of one bound of a run's states, and what it needs beside what all of them do."""
    if kind == "hidden":
        return SHIFT, (EVERY_POTENTIAL,)
    if kind == "box path":
        return BOX, (BOXED_ROWS,)
    if kind == "path" and c["release"] == "path":
        return PATH, ()
    if kind == "path":
        return f"{PATH}, charged for hidden states too: {_expansion(c)}", ()
    if c["batch"] is None:
        raise DeclarationError("all rows are used in every step: no batch is sampled.")
    drawn = (*BATCHES[c["batch"]["scheme"]], HIDDEN_BATCHES)
    if c["batch"]["scheme"] == "fixed":
        return FIXED_PATH, drawn
    return (SAMPLED_REPLACED if adjacency == "replace_one" else SAMPLED_PATH), drawn


def _expansion(c: Constants) -> str:
    """Why no shorter bound was found."""
    if not c["smoothness"] < math.inf:
        return "no potential is proved to be convex and smooth"
    if not c["strong_convexity"] > 0:
        return "no strong convexity of the potential is proved"
    if not max(_sizes(c)) * c["smoothness"] < 2:
        return f"the step size {max(_sizes(c)):g} is not below 2/L = {2 / c['smoothness']:g}"
    return "no contraction that is proved helps here"


def _least_change(adjacency: Adjacency, c: Constants) -> float:
    """How far a row moves the gradient; clipped apart, the coordinate that it moves least."""
    if "clips" not in c:
        return float(c["sensitivity"])
    count, load = 2.0 if adjacency == "replace_one" else 1.0, c["num_rows"] * 2.0**-53
    least = min(clip * math.sqrt(m) for clip, m in zip(c["clips"], c["metric"], strict=True))
    return float(c["temper"] * least * (count + 2 * c["num_rows"] * load / (1 - load)))


def _average(adjacency: Adjacency, c: Constants, parts: int) -> Words:
    """What noised averages rest on."""
    lines: list[Line] = [(moved_together(c["norm"], c["joint"]),), (RELATION[adjacency],)]
    lines += _of_chain(adjacency, c, float(c["sensitivity"]))
    more = [] if c["batch"] is None else [*BATCHES[c["batch"]["scheme"]]]
    if any(slope > 0 and slope * c["distance"] < limit for slope, limit, *_ in c["values"]):
        more += [COUPLING, EVERY_POTENTIAL]
    lines += [(line,) for line in more]
    return Words(COUPLED, _capped(adjacency, c, lines))


def _of_chain(adjacency: Adjacency, c: Constants, moved: float) -> list[Line]:
    lines = [CLIPPED_ROWS, PUBLIC_START, GAUSSIAN_NOISE]
    if adjacency != "replace_one":
        # A replaced row counts twice in the sensitivity; the two kinds of presence have equal numbers.
        lines.append(RELATION[adjacency])
    return [*((line,) for line in lines), _rounding_of(c, moved)]


def _capped(adjacency: Adjacency, c: Constants, lines: list[Line]) -> tuple[Line, ...]:
    bound: list[Line] = [(no_more_rows(c["num_rows"]),)] if adjacency == "add_remove" else []
    return tuple(dict.fromkeys((*lines, *bound)))


def _sizes(c: Constants) -> tuple[float, ...]:
    return c["step_size"] if isinstance(c["step_size"], tuple) else (c["step_size"],)


def _rounding_of(c: Constants, moved: float) -> Line:
    release = c.get("release")
    if "within" in c:
        return (kept_within(c["rounding"], c["within"]),)
    box = 9e-10 * min(_sizes(c)) * moved / (2 * 2.0**-53 * math.sqrt(c["dim"]))
    number = box / (4 * max(_sizes(c))) if release == "path" else box
    # Two computations of one number may print it as neighbours.
    return tuple(
        dict.fromkeys(rounding(release, f"{number * near:.3g}") for near in (1.0, 1 - 1e-12, 1 + 1e-12))
    )


_DRAW = (EVERY_DATA_SET, EXACT_DRAW)
_WORDS: Mapping[str, Callable[[Adjacency, Constants, int], Words]] = {
    "posterior.strongly_log_concave": _related(
        "strongly log-concave posterior (Gopi, Lee, Liu 2022)", *_DRAW
    ),
    "posterior.bounded_gradient": _related(
        "bounded data gradient, log-concave prior (Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1)",
        *_DRAW,
    ),
    "posterior.beta_binomial": _conjugate("Beta-Binomial"),
    "posterior.dirichlet_categorical": _conjugate("Dirichlet-categorical"),
    "posterior.gamma_poisson": _conjugate("Gamma-Poisson"),
    "noise.laplace": _laplace,
    "noise.gaussian": _gaussian,
    "langevin": _langevin,
    "average": _average,
    "composition": _composition,
    "group": _group,
    "adaptive": _related(
        "fully adaptive composition under a Gaussian DP budget (Smith, Thakurta 2022)",
        BUDGET_FIRST,
        STAGES_HOLD,
    ),
}
