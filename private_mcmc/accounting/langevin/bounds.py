"""Every bound of the states that a run releases: proposed as a record, and computed from the record alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from private_mcmc.accounting.curves.curve import Curve, Gaussian
from private_mcmc.accounting.curves.pld import Sampled
from private_mcmc.accounting.curves.product import combine
from private_mcmc.accounting.curves.rdp import check_pair
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
    rounding_allowance,
    row_change,
    sensitivity,
)
from private_mcmc.accounting.langevin.shifts import ShiftBound, affine, affine_after, certify, last_state
from private_mcmc.accounting.rounding import FloatArray, product_up, root_down, root_up, sum_up, up
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants, Record
from private_mcmc.schedule import Average, Matrix, Schedule

_MOST_RATIOS = 64


def curve(run: Run, known: Curvature, record: Constants) -> Curve:
    """The curve of all released states that the bound of this record proves: the one place that computes it.

    ``DeclarationError`` for a bound that does not hold for this run. ``path`` and ``box path``: every state
    as if it were released and the batches known. ``sampled path``: the same with the batches
    hidden. ``stretches``: shifts between released states. ``sampled last``: both at once, for one last
    state.
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
    if kind == "sampled last":
        return sampled_last_curve(run, known, record["first"], record["share"])
    raise DeclarationError(f"no bound {kind!r} is known.")


def proposals(schedule: Schedule, run: Run, known: Curvature) -> list[Record]:
    """Bounds that may be the best; any other would be checked alike. ``run``: the schedule's record, read."""
    found = [*_sampled_path(run), *_sampled_last(schedule, run, known)]
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
    if shifts is not None:
        if len(shifts) != togo + 1:
            raise DeclarationError("one shift before the first step and one after every step.")
        if first > 0 and not stretch["from_diameter"]:
            start = shifts[0]
            alike = maps if isinstance(maps, Sequence) else [maps]
            if not all(float(up(phi.value(np.array([start])))[0]) <= start for phi in dict.fromkeys(alike)):
                raise DeclarationError("the chains may be further apart than the first shift says.")
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
    if first > 0:
        raise DeclarationError("only the diameter bounds the distance of hidden states here.")
    ratios = [(product_up(float(line.offset), over=(float(noises[0]),)), float(line.gap)) for line in lines]
    every_step = certify(maps, noises, np.zeros(togo + 1))
    return min([every_step, *(affine(ratio, gap, togo) for ratio, gap in ratios if gap >= 0)])


def _sampled_last(schedule: Schedule, run: Run, known: Curvature) -> list[Record]:
    """Last state of a Poisson-sampled chain with constant steps: every proposed split is a bound."""
    alike = run.batch is not None and run.batch.scheme == "poisson" and len(set(run.step_sizes)) == 1
    if not alike or run.release != "last" or not noise_ratio(schedule)[1]:
        return []
    chain = sampled_chain(run, known)
    return [
        {"kind": "sampled last", "first": first, "share": share}
        for first, share in (() if chain is None else promising_splits(chain))
    ]


def sampled_last_curve(run: Run, known: Curvature, first: int, share: float) -> Curve:
    """The bound of one split, for all chains."""
    if run.batch is None or run.batch.scheme != "poisson" or run.release != "last":
        raise DeclarationError("only the last state of a Poisson-sampled chain has this bound.")
    chain = sampled_chain(run, known)
    if chain is None:
        raise DeclarationError("the step without the row is not known to be a contraction.")
    return combine((split(chain, first, share).curve,) * run.num_chains)


def sampled_chain(run: Run, known: Curvature) -> SampledChain | None:
    """Its constants, where all steps are alike and do not expand; ``None`` otherwise."""
    size, *others = set(run.step_sizes)
    if others or run.batch is None or run.batch.rate is None:
        return None
    # Every part of a minimum is a modulus; that of one map on two states is zero at zero.
    lines = parts_of(modulus(run, known, size, 0.0))
    gaps = [line.gap for line in lines if isinstance(line, Affine) and line.offset == 0 and line.gap >= 0]
    if not gaps:
        return None
    noise = noise_sd(run, size)
    return SampledChain(
        pair=sampled_pair(run),
        rate=run.batch.rate,
        row_shift=row_ratio(run, size) * noise,
        noise=noise,
        steps=run.num_steps,
        gap=float(gaps[0]),
        rounding=idle_rounding(run, size),
        diameter=run.diameter,
    )


def idle_rounding(schedule: Run, step_size: float) -> float:
    """How far rounding moves two computed steps apart whose batches do not hold the row, states differing.

    The sums of the same rows at two states are off by at most ``rounding_allowance`` together, the step after
    them by at most ``rounding`` times what one row moves it.
    """
    after = product_up(schedule.rounding, row_change(schedule))
    return product_up(step_size, sum_up((rounding_allowance(schedule), after)))


_SHARES = np.linspace(0.02, 0.98, 49)


@dataclass(frozen=True, kw_only=True)
class SampledChain:
    """Public constants of a Poisson-sampled chain, in the metric of its noise.

    The last state is amplified by sampling and by iteration at once. The noise of its last ``n = T −
    τ`` steps is split. A share ``κ`` of its variance hides the differing row's whole term, as in every
    Poisson-sampled Gaussian mechanism; the rest absorbs the distance ``z_τ`` of the two chains after
    ``τ`` steps by shifts, with the modulus of the step *without that row*, which is one and the same
    map in both chains but for rounding, which every step is charged. By adaptive composition, step after
    step, the last state costs no more than ``n`` sampled mechanisms with noise ``√κ σ`` and one Gaussian
    mechanism.

    Source: BFG Section 5 for the idea. Its proof conditions on all of the first share's noise, which
    also fixes the maps of later steps; the recursion used here does not.

    Attributes:
        pair: ``"add_remove"`` (also for ``zero_out``) or ``"replace_one"``: the pair of one step.
        rate: ``q``, the probability of each row.
        row_shift: ``r = γ(n/b)wC``, the most that one present row moves a step.
        noise: ``σ``, the standard deviation of a step's noise.
        steps: ``T``.
        gap: ``1 − ρ`` of the step without the differing row, which is ``ρ``-Lipschitz for **every** batch
            that can occur, ``0 ≤ ρ ≤ 1``.
        rounding: what float64 adds to the distance of two chains in a step without the row.
        diameter: of the set projected on, or ``inf``.

    ``DeclarationError`` for values out of range.
    """

    pair: str
    rate: float
    row_shift: float
    noise: float
    steps: int
    gap: float
    rounding: float = 0.0
    diameter: float = math.inf

    def __post_init__(self) -> None:
        check_pair(self.pair, self.rate, self.row_shift)
        if self.pair == "fixed":
            raise DeclarationError(
                "batches of fixed size have no last-state bound: the slot of an absent row is refilled. "
                "Use Poisson batches, or the path."
            )
        if not (0 < self.noise < math.inf and self.steps >= 1 and self.diameter > 0):
            raise DeclarationError("a sampled chain needs noise > 0, steps ≥ 1 and diameter > 0.")
        if not 0 <= self.gap <= 1:
            raise DeclarationError(
                f"gap={self.gap}: the step without the row must not expand, 0 ≤ 1 − ρ ≤ 1."
            )

    @property
    def largest_shift(self) -> float:
        """``s_max``: what the differing row adds to the distance of chains with equal batches."""
        return self.row_shift if self.pair == "add_remove" else 2 * self.row_shift

    def distance(self, steps: int) -> float:
        """Distance surely not exceeded after ``steps`` steps with equal noise and equal batches."""
        if steps == 0:
            return 0.0
        rate = math.inf if self.gap == 1 else -math.log1p(-self.gap)
        reached = float(steps) if self.gap == 0 else -math.expm1(-steps * rate) / self.gap
        return min(self.diameter, product_up(self.largest_shift, up(reached)))

    def absorbed(self, distance: float, togo: int) -> float:
        """``m²`` of bringing two copies of the chain together in ``togo`` steps with the whole noise."""
        return affine_after(distance, self.rounding, self.gap, self.noise, togo)


@dataclass(frozen=True)
class Split:
    """One way to share the noise: ``count`` sampled steps at ``r/(√κ σ)``, then an ``m``-GDP term.

    Attributes:
        first: ``τ``; the bound starts after this many steps.
        share: ``κ``.
        m: GDP parameter of absorbing the distance ``z_τ``.
        curve: the composition of both.
    """

    first: int
    share: float
    m: float
    curve: Curve


def split(chain: SampledChain, first: int, share: float) -> Split:
    """The bound with start ``τ = first`` and share ``κ``; ``first = 0`` with ``κ = 1`` is plain composition.

    **Guarantee**: the last state satisfies ``Split.curve``.
    ``DeclarationError`` unless ``0 ≤ τ < T``, ``0 < κ ≤ 1``, and ``κ < 1`` where the chains differ at ``τ``.
    """
    if not (0 <= first < chain.steps and 0 < share <= 1):
        raise DeclarationError(f"first={first}, share={share}: need 0 ≤ τ < T and 0 < κ ≤ 1.")
    distance = chain.distance(first)
    if share == 1 and (distance > 0 or chain.rounding > 0):
        raise DeclarationError("share=1 leaves no noise to absorb the distance of the chains.")
    togo = chain.steps - first
    square = (
        0.0
        if distance == 0 and chain.rounding == 0
        else product_up(chain.absorbed(distance, togo), over=(1 - share,))
    )
    ratio = product_up(chain.row_shift, over=(root_down(share), chain.noise))
    parts: tuple[Curve, ...] = (Sampled(chain.pair, chain.rate, ratio, togo),)
    m = root_up(product_up(square, 1 + 2.0**-50))
    if m > 0:
        parts += (Gaussian(m),)
    return Split(first, share, m, combine(parts))


def promising_splits(chain: SampledChain, count: int = 3) -> tuple[tuple[int, float], ...]:
    """``(first, share)`` of the most promising splits, by a Gaussian approximation of the sampled part.

    Every one of them gives a valid bound; the approximation only ranks them.
    """
    lengths = np.unique(np.geomspace(1, chain.steps, 120).round().astype(int))
    best: list[tuple[float, int, float]] = []
    for togo in lengths.tolist():
        distance = chain.distance(chain.steps - togo)
        if distance == 0 or not math.isfinite(distance):
            continue
        absorbed = chain.absorbed(distance, togo)
        totals = absorbed / (1 - _SHARES) + togo * _rough_square(chain, _SHARES)
        at = int(np.argmin(totals))
        best.append((float(totals[at]), chain.steps - togo, float(_SHARES[at])))
    best.sort()
    return tuple((first, share) for _, first, share in best[:count])


def _rough_square(chain: SampledChain, shares: FloatArray) -> FloatArray:
    """Approximate ``m²`` of one sampled step (central limit)."""
    whole = 1.0 if chain.pair == "add_remove" else 2.0
    ratio = min(product_up(chain.row_shift, over=(chain.noise,)), 1e100)
    squared = ratio**2 / shares
    sampled = (whole * chain.rate) ** 2 * np.expm1(np.minimum(squared, 50.0))
    return np.minimum(sampled, whole**2 * squared)
