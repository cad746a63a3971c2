"""The sentences that statements quote, each written once: claims quote them, ``verify`` asks for them.

A rule whose numbers do not show the adjacency that they are for quotes ``RELATION``, so that a record
with another adjacency written into it lacks a sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from private_mcmc.records import Constants
from private_mcmc.schedule import BatchScheme
from private_mcmc.target import Adjacency, Unit

Line = re.Pattern[str]

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
EVERY_BATCH = "the constants hold for the potential of every batch, up to all rows"
NEAREST_POINT = "the projection is the nearest point in the norm ‖M^{-1/2}·‖"
POISSON = "each row enters a batch independently with the declared probability"
SUBSETS = "every batch is a uniformly drawn subset of the declared size, independent of the others"
HIDDEN_BATCHES = "which rows were drawn stays hidden"

COUPLING = (
    "two chains on adjacent data that share start and noise stay within the synchronous-coupling distance of "
    "each other surely (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7)"
)

CLIPPED_RADIUS = "every row's norm is clipped at the radius"
ONE_DRAW = "each entry pair carries one noise draw"
INDEPENDENT = "the mechanisms use independent randomness and were fixed in advance"
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


def missing(needed: Iterable[Line], given: Iterable[str]) -> str | None:
    """A sentence that a rule needs and a record does not quote."""
    quoted = tuple(given)
    for line in needed:
        if not any(line.fullmatch(text) for text in quoted):
            return line.pattern.replace("\\", "")
    return None


def exactly(*texts: str) -> tuple[Line, ...]:
    """Each of these sentences, to the letter."""
    return tuple(re.compile(re.escape(text)) for text in texts)


def of_langevin(adjacency: Adjacency, c: Constants) -> tuple[Line, ...]:
    """What the bounds of a run rest on."""
    lines = _of_chain(adjacency, c)
    drawn = () if c["batch"] is None else (*BATCHES[c["batch"]["scheme"]], HIDDEN_BATCHES)
    for bound in c["bounds"]:
        if bound["kind"] == "stretches":
            lines.append(EVERY_POTENTIAL)
            lines += [NEAREST_POINT] if c["diameter"] < math.inf else []
        elif bound["kind"] == "sampled last":
            lines += [POISSON, HIDDEN_BATCHES, EVERY_BATCH]
        elif bound["kind"] == "box path":
            lines.append(BOXED_ROWS)
        elif bound["kind"] != "path":
            lines += drawn
    return (*exactly(*dict.fromkeys(lines)), _rounding_of(c, _least_change(adjacency, c)))


def _least_change(adjacency: Adjacency, c: Constants) -> float:
    """How far a row moves the gradient; clipped apart, the coordinate that it moves least."""
    if "clips" not in c:
        return float(c["sensitivity"])
    count, load = 2.0 if adjacency == "replace_one" else 1.0, c["num_rows"] * 2.0**-53
    least = min(clip * math.sqrt(m) for clip, m in zip(c["clips"], c["metric"], strict=True))
    return float(c["temper"] * least * (count + 2 * c["num_rows"] * load / (1 - load)))


def of_average(adjacency: Adjacency, c: Constants) -> tuple[Line, ...]:
    """What noised averages rest on."""
    lines = [moved_together(c["norm"], c["joint"]), RELATION[adjacency], *_of_chain(adjacency, c)]
    lines += () if c["batch"] is None else BATCHES[c["batch"]["scheme"]]
    if any(slope > 0 and slope * c["distance"] < limit for slope, limit, *_ in c["values"]):
        lines += [COUPLING, EVERY_POTENTIAL]
        lines += [NEAREST_POINT] if c["diameter"] < math.inf else []
    return (*exactly(*dict.fromkeys(lines)), _rounding_of(c, float(c["sensitivity"])))


def _of_chain(adjacency: Adjacency, c: Constants) -> list[str]:
    lines = [CLIPPED_ROWS, PUBLIC_START, GAUSSIAN_NOISE]
    if adjacency != "replace_one":
        # A replaced row counts twice in the sensitivity; the two kinds of presence have equal numbers.
        lines.append(RELATION[adjacency])
    if adjacency == "add_remove":
        lines.append(no_more_rows(c["num_rows"]))
    return lines


def _rounding_of(c: Constants, moved: float) -> Line:
    release = c.get("release")
    if "within" in c:
        return exactly(kept_within(c["rounding"], c["within"]))[0]
    sizes = c["step_size"] if isinstance(c["step_size"], tuple) else (c["step_size"],)
    box = 9e-10 * min(sizes) * moved / (2 * 2.0**-53 * math.sqrt(c["dim"]))
    number = box / (4 * max(sizes)) if release == "path" else box
    # Two computations of one number may print it as neighbours.
    texts = {rounding(release, f"{number * near:.3g}") for near in (1 - 1e-12, 1.0, 1 + 1e-12)}
    return re.compile("|".join(map(re.escape, sorted(texts))))
