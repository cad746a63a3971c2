"""Every bound of the states that a run releases: proposed as a record, and computed from the record alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from private_mcmc.accounting.curves.curve import Curve, Gaussian
from private_mcmc.accounting.curves.pld import Sampled
from private_mcmc.accounting.curves.product import combine
from private_mcmc.accounting.langevin.moduli import (
    Affine,
    Curvature,
    Moduli,
    modulus,
    noise_sd,
    parts_of,
)
from private_mcmc.accounting.langevin.sensitivity import (
    Run,
    coordinate_changes,
    dense,
    farthest_corner,
    noise_ratio,
    row_change,
    sensitivity,
)
from private_mcmc.accounting.langevin.shifts import ShiftBound, affine, affine_after, certify, last_state
from private_mcmc.accounting.rounding import FloatArray, product_up, root_up, sum_up
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants, Record
from private_mcmc.schedule import Average, Matrix, Schedule

_MOST_RATIOS = 64


def curve(run: Run, known: Curvature, record: Constants) -> Curve:
    """The curve of all released states that the bound of this record proves: the one place that computes it.

    ``DeclarationError`` for a bound that does not hold for this run. ``path`` and ``box path``: every state
    as if it were released and the batches known. ``sampled path``: the same with the batches
    hidden. ``stretches``: shifts between released states.
    """
    kind = record["kind"]
    if (kind == "box path") != (run.clips is not None):
        raise DeclarationError(
            "rows clipped by coordinates have the bound of their box, and no others have it."
        )
    if kind == "path":
        return path_curve(run)
    if kind == "box path" and isinstance(run, Schedule):
        return box_curve(run)
    if kind == "sampled path":
        return sampled_path_curve(run)
    if kind == "stretches":
        return stretches_curve(run, known, record["stretches"])
    raise DeclarationError(f"no bound {kind!r} is known.")


def proposals(schedule: Schedule, run: Run, known: Curvature) -> list[Record]:
    """Bounds that may be the best; any other would be checked alike. ``run``: the schedule's record, read."""
    found = _sampled_path(run)
    if schedule.clips is not None:
        return [*found, {"kind": "box path"}]
    return [*found, *_stretches(schedule, run, known), {"kind": "path"}]


def released_steps(schedule: Run) -> tuple[int, ...]:
    """The steps whose states leave the curator's side, in order; an average is refused."""
    check_states(schedule)
    if isinstance(schedule.release, tuple):
        return schedule.release
    if schedule.release == "last":
        return (schedule.num_steps,)
    return tuple(range(1, schedule.num_steps + 1))


def check_states(schedule: Run) -> None:
    """Raise ``DeclarationError`` for an average, which is a release of its own."""
    if isinstance(schedule.release, Average):
        raise DeclarationError(
            "an average of hidden states is private only with noise: use average_sensitivity and laplace."
        )


def last_released(schedule: Run) -> int:
    """The last step that is released."""
    return schedule.release[-1] if isinstance(schedule.release, tuple) else schedule.num_steps


def for_chains(square: float, schedule: Run) -> Gaussian:
    """The curve of all independent chains, with the slack for rounding after the sum."""
    whole = root_up(product_up(square, float(schedule.num_chains)))
    return Gaussian(product_up(whole, 1 + schedule.rounding))


def path_curve(schedule: Run) -> Gaussian:
    """All states up to the last released one, as if the batches were known: ``m² = Σ (γΔ/σ)²``."""
    change = sensitivity(schedule)
    # The sum, rounded up: correctly rounded sums are at most half a unit below.
    try:
        time = math.fsum(schedule.step_sizes[: last_released(schedule)])
    except OverflowError:
        raise DeclarationError("step_size: the sum of all steps overflows; take smaller ones.") from None
    square = product_up(math.nextafter(time, math.inf), change, change, 0.5, over=(noise_ratio(schedule)[0],))
    return for_chains(square, schedule)


def box_curve(schedule: Schedule) -> Gaussian:
    """All states up to the last one, coordinates clipped apart: ``m² = Σ_k γ_k/2 sup vᵀN⁻¹v``.

    ``v = Mδ`` over the box of gradients' differences ``δ``, ``S = 2γN`` the noise: its farthest corner.
    """
    scales = np.diag(dense(schedule.preconditioner, schedule.dim, "preconditioner")).tolist()
    noise: Matrix = tuple(scales) if schedule.noise is None else schedule.noise
    changes = zip(coordinate_changes(schedule), scales, strict=True)
    widths = [product_up(change, root_up(scale)) for change, scale in changes]
    corner = farthest_corner(widths, np.asarray(noise, dtype=np.float64))
    time = math.nextafter(math.fsum(schedule.step_sizes[: last_released(schedule)]), math.inf)
    return for_chains(product_up(time, 0.5, corner), schedule)


def _sampled_path(run: Run) -> list[Record]:
    return [] if run.batch is None else [{"kind": "sampled path"}]


def sampled_path_curve(run: Run) -> Curve:
    """All states up to the last released one, with amplification by the sampling of batches."""
    batch = run.batch
    if batch is None:
        raise DeclarationError("all rows are used in every step: no batch is sampled.")
    counts: Counter[float] = Counter()
    for size, count in Counter(run.step_sizes[: last_released(run)]).items():
        counts[row_ratio(run, size)] += count
    rate = batch.rate if batch.rate is not None else (batch.size or 0) / run.num_rows
    pair, chains = sampled_pair(run), run.num_chains
    steps = sorted(_coarsened(counts).items())
    return combine(tuple(Sampled(pair, rate, ratio, count * chains) for ratio, count in steps))


def sampled_pair(schedule: Run) -> str:
    """The dominating pair of one step: under Poisson batches ``zero_out`` has that of ``add_remove``."""
    if schedule.batch is not None and schedule.batch.scheme == "fixed":
        return "fixed"
    return "replace_one" if schedule.adjacency == "replace_one" else "add_remove"


def row_ratio(schedule: Run, step_size: float) -> float:
    """``r/σ``: what one present row, with the rounding of two sums, moves a step, over its noise."""
    change, noise = row_change(schedule), noise_sd(schedule, step_size)
    return product_up(step_size, change, 1 + schedule.rounding, over=(noise,))


def _coarsened(counts: Counter[float]) -> Counter[float]:
    """At most a few dozen different ratios, each rounded up by at most 2 %."""
    if len(counts) <= _MOST_RATIOS:
        return counts
    coarse: Counter[float] = Counter()
    top = max(counts)
    for ratio, count in counts.items():
        steps = math.floor(math.log(top / ratio) / math.log(1.02))
        coarse[max(ratio, top * 1.02**-steps)] += count
    return coarse


def _stretches(schedule: Schedule, run: Run, known: Curvature) -> list[Record]:
    """Shifts, stretch by stretch between released states, as if the batches were known."""
    if not noise_ratio(schedule)[1] or run.release == "path":
        return []
    edges, all_sizes = (0, *released_steps(run)), run.step_sizes
    found: dict[tuple[float, ...], ShiftBound] = {}
    records = []
    for early, late in pairwise(edges):
        sizes = all_sizes[early:late]
        if sizes not in found:
            maps, noises = _maps(run, known, sizes)
            found[sizes] = last_state(maps, noises, len(sizes), diameter=run.diameter)
        bound = found[sizes]
        fields = {"first": bound.first, "from_diameter": bound.from_diameter, "shifts": bound.shifts}
        records.append({"steps": late - early, **fields})
    return [{"kind": "stretches", "stretches": tuple(records)}]


def _maps(run: Run, known: Curvature, sizes: tuple[float, ...]) -> tuple[Moduli, FloatArray]:
    """The modulus of the steps, one where all are alike, and the noise of each."""
    noises = {size: noise_sd(run, size) for size in set(sizes)}
    change, sds = sensitivity(run), np.array([noises[size] for size in sizes])
    if len(noises) == 1:
        return modulus(run, known, sizes[0], change), sds
    maps = {size: modulus(run, known, size, change) for size in noises}
    return [maps[size] for size in sizes], sds


def stretches_curve(run: Run, known: Curvature, stretches: Sequence[Constants]) -> Gaussian:
    """What the shifts of every stretch between releases prove; stretches that are alike are checked once."""
    if run.release == "path":
        raise DeclarationError("a path has no hidden states.")
    if tuple(accumulate(stretch["steps"] for stretch in stretches)) != released_steps(run):
        raise DeclarationError("the stretches do not end at the released steps.")
    squares: list[float] = []
    seen: dict[tuple[object, ...], float] = {}
    for early, late, stretch in zip((0, *released_steps(run)), released_steps(run), stretches, strict=False):
        sizes = run.step_sizes[early:late]
        key = (sizes, stretch["first"], stretch["from_diameter"], stretch["shifts"])
        if key not in seen:
            seen[key] = _stretch_square(run, known, sizes, stretch)
        squares.append(seen[key])
    return for_chains(sum_up(squares), run)


def _stretch_square(run: Run, known: Curvature, sizes: tuple[float, ...], stretch: Constants) -> float:
    """``m²`` of one stretch: by its shifts, which are checked, or else by the closed forms for one line."""
    (maps, noises), first, shifts = _maps(run, known, sizes), stretch["first"], stretch["shifts"]
    diameter, togo = run.diameter, len(sizes) - first
    if not togo >= 1 or (stretch["from_diameter"] and not math.isfinite(diameter)):
        raise DeclarationError("a stretch begins before its last step, or from a diameter that is declared.")
    start = diameter if stretch["from_diameter"] else 0.0
    if first > 0 and not stretch["from_diameter"]:
        raise DeclarationError("only the diameter bounds the distance of hidden states here.")
    if shifts is not None:
        if len(shifts) != togo + 1:
            raise DeclarationError("one shift before the first step and one after every step.")
        return certify(
            maps[first:] if isinstance(maps, Sequence) else maps, noises[first:], shifts, start=start
        )
    lines = (
        [] if isinstance(maps, Sequence) else [part for part in parts_of(maps) if isinstance(part, Affine)]
    )
    if stretch["from_diameter"]:
        forms = [(float(line.offset), float(line.gap)) for line in lines]
        return min(
            (affine_after(diameter, offset, gap, float(noises[0]), togo) for offset, gap in forms),
            default=math.inf,
        )
    ratios = [(product_up(float(line.offset), over=(float(noises[0]),)), float(line.gap)) for line in lines]
    every_step = certify(maps, noises, np.zeros(togo + 1))
    return min([every_step, *(affine(ratio, gap, togo) for ratio, gap in ratios if gap >= 0)])
