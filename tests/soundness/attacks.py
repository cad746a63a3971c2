"""Attacks that know the mechanism, and pairs of data sets that are likely to leak most.

Likelihood ratios of a path, noise used twice, and the differing row's loss; extreme rows, and rows whose
gradients stay below the clip.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.distributions import biject_to

from private_mcmc.accounting.steps import batch_factor
from private_mcmc.auditing import AuditResult
from private_mcmc.auditing import mechanism as chains
from private_mcmc.auditing.mechanism import DataSet, FloatArray, Mechanism, Pair, Score, length, present_slots
from private_mcmc.domains.columns import PRESENT, blank
from private_mcmc.errors import DeclarationError
from private_mcmc.inference import PrivateMCMC
from private_mcmc.kernels import LangevinKernel
from private_mcmc.kernels.gradient import schedule_gradient, whitening
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import PublicRow, extreme_rows, stacked
from private_mcmc.release import Expectations
from private_mcmc.schedule import Schedule
from private_mcmc.target import Target

# Steps this far apart are compared for noise that was used twice.
_MOST_LAGS = 64


class Side(NamedTuple):
    """One hypothesis: rows in their slots, which slots hold one, and which do besides the differing row's."""

    columns: dict[str, jax.Array]
    present: jax.Array
    others: jax.Array


# A row and its weight: zero where the data set lacks it.
WeightedRow = tuple[dict[str, jax.Array], jax.Array]


class Terms(NamedTuple):
    """Of every step, ``−|x_{k+1} − E x_{k+1}|²/(4γ)`` without and with the differing row, and the residual.

    The residual ``(x_{k+1} − E x_{k+1})/√(2γ)`` is with the row.
    """

    without: jax.Array
    including: jax.Array
    residual: jax.Array


class ChainAttacks:
    """Attacks on the released states of ``schedule``, whose chains start at ``start``, shape ``(p,)``.

    Compiled once; the data sets of a pair are arguments.
    """

    def __init__(self, model: RowModel, schedule: Schedule, start: FloatArray) -> None:
        self._model, self._schedule, self._start = model, schedule, start
        self._known = schedule.rate is None
        self._of_paths = jax.jit(self._path_scores)
        self._of_losses = jax.jit(self._losses)

    def __call__(self, pair: Pair) -> dict[str, Score]:
        """Scores by name, larger where the second data set is likelier."""
        sides = self._sides(pair)
        rows = [self._row(side) for side in sides]

        def of_path(name: str) -> Score:
            return self._on_states(lambda theta: self._of_paths(theta, *sides)[name])

        scores = {"loss of the row": self._on_states(lambda theta: self._of_losses(theta, *rows))}
        if self._schedule.release == "path":
            known = ["likelihood ratio", "noise used twice"]
            names = known if self._known else [_window_name(size) for size in self._windows()]
            scores |= {name: of_path(name) for name in names}
        return scores

    def _sides(self, pair: Pair) -> tuple[Side, Side]:
        places = pair.differing(self._schedule.adjacency)
        one, two = (
            _side(self._model, self._schedule.num_rows, data, place)
            for data, place in zip((pair.first, pair.second), places, strict=True)
        )
        return one, two

    def _row(self, side: Side) -> WeightedRow:
        """The differing row, or any one with weight zero."""
        weight = jnp.sum(side.present) - jnp.sum(side.others)
        place = int(np.argmax(np.asarray(side.present & ~side.others)))
        return {name: column[place] for name, column in side.columns.items()}, weight

    def _losses(self, theta: jax.Array, first: WeightedRow, second: WeightedRow) -> jax.Array:
        """``v(θ, d) − v(θ, d')`` summed over released states: membership inference by the row's own loss."""

        def loss(state: jax.Array, row: dict[str, jax.Array], weight: jax.Array) -> jax.Array:
            return jnp.where(weight > 0, self._model.row_loss(state, row), 0.0)

        states = theta.reshape(theta.shape[0], -1, self._model.dim)
        return jax.vmap(jax.vmap(lambda t: loss(t, *first) - loss(t, *second)))(states).sum(axis=-1)

    def _windows(self) -> tuple[int, ...]:
        """Numbers of steps over which a batch might be kept: powers of two, and the whole run."""
        steps = self._schedule.num_steps
        return tuple(sorted({1, steps, *(2**power for power in range(1, 12) if 2**power < steps)}))

    def _path_scores(self, theta: jax.Array, first: Side, second: Side) -> dict[str, jax.Array]:
        """Every attack on paths ``(runs, chains, steps, p)``, from each step's law under both data sets.

        *Likelihood ratio*: ``Σ_k log p'(x_{k+1} | x_k) − log p(x_{k+1} | x_k)``, each step Gaussian given the
        last state and the batch. With every row at every step, or batches in turn, and noise ``2γM`` no test
        of the path can beat it (Neyman, Pearson). With random batches the differing row is in with
        probability ``q`` and out otherwise, all others in with weight ``q``, drawn anew for every so many
        steps: one step as declared, more as a fault might have it. Other noise and projections are left out
        of the formula. *Noise used twice*: under the true data set two steps would have left equal
        residuals; which data set brings two of them closer together?
        """
        change = whitening(self._schedule.preconditioner, self._model.dim)
        u = change.from_parameter(theta)
        origin = jnp.broadcast_to(change.from_parameter(jnp.asarray(self._start)), u[..., :1, :].shape)
        before = jnp.concatenate([origin, u[..., :-1, :]], axis=-2)
        one, two = (self._terms(before, u, side) for side in (first, second))
        if not self._known:
            return {
                _window_name(size): self._mixture(two, size) - self._mixture(one, size)
                for size in self._windows()
            }
        ratio = (two.including - one.including).sum(axis=(-1, -2))
        return {"likelihood ratio": ratio, "noise used twice": _nearest(one) - _nearest(two)}

    def _terms(self, before: jax.Array, after: jax.Array, side: Side) -> Terms:
        model, schedule = self._model, self._schedule
        change = whitening(schedule.preconditioner, model.dim)
        gradient = schedule_gradient(model, change, schedule, None, schedule.clip)
        prior = jax.grad(lambda u: model.neg_log_prior(change.to_parameter(u)))
        rows = gradient.prepare(side.columns, side.present)

        def of_step(u: jax.Array, then: jax.Array, gamma: jax.Array) -> Terms:
            common_rows = gradient.total(u, rows._replace(present=rows.present & side.others))
            everyone = gradient.total(u, rows)
            # The others' batch has their sum for its mean; one in which the row is counts it ``1/q`` times.
            others = prior(u) + schedule.temper * common_rows
            row = schedule.temper * batch_factor(schedule) * (everyone - common_rows)
            apart = then - u + gamma * jnp.stack([others, others + row])
            without, including = -jnp.sum(apart**2, axis=-1) / (4 * gamma)
            return Terms(without, including, apart[1] / jnp.sqrt(2 * gamma))

        gammas = jnp.asarray(schedule.step_sizes)
        return jax.vmap(jax.vmap(lambda b, a: jax.vmap(of_step)(b, a, gammas)))(before, after)

    def _mixture(self, terms: Terms, size: int) -> jax.Array:
        """Log density of paths whose batches are drawn for ``size`` steps at a time, up to a constant."""
        steps = self._schedule.num_steps
        pairs = jnp.stack([terms.without, terms.including], axis=-1)
        padded = jnp.pad(pairs, [(0, 0), (0, 0), (0, -steps % size), (0, 0)])
        kept = padded.reshape(*padded.shape[:2], -1, size, 2).sum(axis=-2)
        share = self._schedule.rate
        weights = jnp.log(jnp.asarray([1 - share, share]))
        return jax.scipy.special.logsumexp(weights + kept, axis=-1).sum(axis=(-1, -2))

    def _on_states(self, of_runs: Callable[[jax.Array], jax.Array]) -> Score:
        """A score of flat outputs from a function of states; what is not finite becomes finite."""
        chains = self._schedule.num_chains
        sizes = [int(np.prod(site.shape)) for site in self._model.sites]

        def score(outputs: FloatArray) -> FloatArray:
            flat = outputs.reshape(len(outputs) * chains, -1, sum(sizes))
            parts = np.split(flat, np.cumsum(sizes)[:-1], axis=2)
            values = {
                site.name: part.reshape(*part.shape[:2], *site.shape)
                for site, part in zip(self._model.sites, parts, strict=True)
            }
            states = unconstrained(self._model, values).reshape(len(outputs), chains, -1, self._model.dim)
            with jax.enable_x64(True):
                values = of_runs(jnp.asarray(states))
            return np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64)), -1e30, 1e30)

        return score


def unconstrained(reading: RowModel, samples: Mapping[str, npt.NDArray[np.generic]]) -> FloatArray:
    """Released states ``(chains, kept, p)`` on the unconstrained space, whose image every site is."""
    parts = []
    with jax.enable_x64(True):
        for site in reading.sites:
            value = biject_to(site.constraint).inv(jnp.asarray(samples[site.name]))
            parts.append(np.asarray(value, dtype=np.float64).reshape(*value.shape[:2], -1))
    return np.concatenate(parts, axis=-1)


def _window_name(size: int) -> str:
    return "likelihood ratio" if size == 1 else f"likelihood ratio, batches kept for {size} steps"


def _side(model: RowModel, slots: int, data: DataSet, place: int | None) -> Side:
    present = present_slots(data, slots)
    others = present.copy()
    if place is not None:
        others[place] = False
    missing = slots - length(data)

    def filled(column: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.concatenate([column, np.zeros((missing, *column.shape[1:]), column.dtype)])

    with jax.enable_x64(True):
        columns = {
            name: jnp.asarray(filled(blank(np.asarray(data[name]), present[: length(data)])))
            for name, _ in model.rows.items
        }
        projected = model.rows.project(columns)
        return Side(projected, jnp.asarray(present), jnp.asarray(others))


def _nearest(terms: Terms) -> jax.Array:
    """Log distance of the two closest residuals of a run, all its chains' steps in a row."""
    residuals = terms.residual.reshape(terms.residual.shape[0], -1, terms.residual.shape[-1])
    count = residuals.shape[1]
    closest = [
        jnp.min(jnp.linalg.norm(residuals[:, lag:] - residuals[:, :-lag], axis=-1), axis=-1)
        for lag in range(1, min(count - 1, _MOST_LAGS) + 1)
    ]
    if not closest:
        return jnp.zeros(residuals.shape[0])
    return jnp.log(jnp.min(jnp.stack(closest), axis=0) + 1e-12)


@dataclass(frozen=True, eq=False)
class PairedMechanism(Mechanism):
    """A mechanism and the pairs of data sets that are likely to leak most, the likeliest first."""

    pairs: Callable[[], tuple[Pair, ...]] = tuple


def deltas(mechanism: Mechanism, points: Sequence[tuple[float, float]]) -> list[float]:
    """Where the claim is compared: at every ``δ`` of the points, and where it claims their ``ε``."""
    claimed = [float(mechanism.statement.delta(epsilon)) for epsilon, _ in points]
    return [*(delta for _, delta in points), *(min(delta, 0.999) for delta in claimed)]


def tightness(found: AuditResult) -> float:
    """The largest ``lower/upper`` of an audit: 1 is a claim that cannot be improved."""
    return max(one.lower / one.upper if one.upper else float(one.lower > 0) for one in found.comparisons)


def chain_mechanism(kernel: LangevinKernel, **declared: Any) -> PairedMechanism:
    """The chain that ``audit`` runs, with attacks that know it and its worst pairs."""
    plain, release = chains.chain_mechanism(kernel, **declared), declared["release"]
    asked = {name: declared[name] for name in ("rows", "num_steps", "n", "num_chains") if name in declared}
    target = declared["target"]
    if not isinstance(release, Expectations):
        target = Target(1e6, 1 - 1e-6, target.adjacency)
    decision = PrivateMCMC(kernel, target=target, release=release, guarantee="run", **asked).decide(
        declared["n"]
    )
    reading, schedule = decision.reading, decision.schedule
    made = PairedMechanism(
        plain.name, plain.statement, plain.draw, pairs=lambda: worst_pairs(reading, schedule)
    )
    if isinstance(release, Expectations) or any(site.constraint is None for site in reading.sites):
        return made
    return replace(made, scores=ChainAttacks(reading, schedule, np.zeros(reading.dim)))


_PROBES = 5
_MOST_ROWS = 64
# How far from the silent row towards the extremes rows are looked for that do not reach the clip, and how
# far below it they must stay.
_SHARES = (0.5, 0.2, 0.05, 0.01, 0.001)
_BELOW = 0.9


def worst_pairs(model: RowModel, schedule: Schedule, most: int = 3) -> tuple[Pair, ...]:
    """Pairs that are likely to leak most, the likeliest first, from clipped gradients at public probes.

    The ``most`` pairs of extreme rows whose gradients differ most, beside copies of the domain's most silent
    row (others would only add curvature, which hides). The best of them also beside copies of its own first
    row, and in the first and in a middle slot, since a fault may treat slots unequally. Then pairs of rows
    whose gradients do not reach the clip: what a fault gives away there, two rows that both saturate hide.
    """
    rows = extreme_rows(model.rows)[:_MOST_ROWS]
    sizes = _sizes(_gradients(model, schedule, rows))
    silent = rows[int(np.argmin(sizes))]
    n, presence = schedule.num_rows, schedule.adjacency != "replace_one"
    if presence and n < 2:
        raise DeclarationError("n=1: an audit under add_remove or zero_out needs at least 2 rows.")
    best = _apart_most(model, schedule, rows, most, presence)
    among = partial(pair_of_rows, count=n - 1, holes=schedule.adjacency == "zero_out")
    pairs = [among(silent, first=one, second=two) for one, two in best]
    if n > 1:
        one, two = best[0]
        pairs.append(among(one, first=one, second=two))
        places = sorted({0, n // 2} - {n - 1})
        pairs += [among(silent, first=one, second=two, place=place) for place in places]
    quiet = _quiet(model, schedule, rows, silent)
    if quiet:
        one, two = _apart_most(model, schedule, quiet, 1, presence)[0]
        pairs.append(among(silent, first=one, second=two))
        if not presence:
            # Opposite and small, and of one direction but different size.
            pairs.append(among(silent, first=best[0][0], second=one))
    return tuple(pairs)


def pair_of_rows(
    others: PublicRow,
    count: int,
    first: PublicRow | None,
    second: PublicRow | None,
    place: int | None = None,
    holes: bool = False,
) -> Pair:
    """``count`` copies of ``others``, and ``first`` or ``second`` (``None``: absent) in slot ``place``.

    The slot is the last one if left out. An absent row leaves its slot empty with ``holes``, and otherwise
    none.
    """
    slot = count if place is None else place

    def columns(one: PublicRow | None) -> dict[str, npt.NDArray[np.generic]]:
        filling = [others] if holes else []
        listed = [others] * slot + (filling if one is None else [one]) + [others] * (count - slot)
        table = {name: np.stack([np.asarray(row[name]) for row in listed]) for name in others}
        if holes and one is None:
            table[PRESENT] = np.arange(len(listed)) != slot
        return table

    where = "" if slot == count else f" in slot {slot}"
    return Pair(
        columns(first), columns(second), f"{_words(first)} | {_words(second)}{where}, others {_words(others)}"
    )


def _gradients(model: RowModel, schedule: Schedule, rows: list[PublicRow]) -> FloatArray:
    """Clipped gradients of every row at the probes, shape ``(rows, probes, p)``."""
    change = whitening(schedule.preconditioner, model.dim)
    gradient = schedule_gradient(model, change, schedule, None, schedule.clip)
    probes = np.random.default_rng(0).normal(size=(_PROBES, model.dim))
    probes[0] = 0.0
    with jax.enable_x64(True):
        columns = model.rows.project(stacked(rows))

        def of_row(row: dict[str, jax.Array]) -> jax.Array:
            single = {name: value[None] for name, value in row.items()}
            prepared = gradient.prepare(single, jnp.ones(1, dtype=bool))
            return jax.vmap(lambda u: gradient.total(u, prepared))(jnp.asarray(probes))

        return np.asarray(jax.jit(jax.vmap(of_row))(columns), dtype=np.float64)


def _apart_most(
    model: RowModel, schedule: Schedule, rows: list[PublicRow], most: int, presence: bool
) -> list[tuple[PublicRow, PublicRow | None]]:
    """Pairs of ``rows`` whose gradients differ most; single ones where the other data set lacks the row."""
    gradients = _gradients(model, schedule, rows)
    if presence:
        return [(rows[int(i)], None) for i in np.argsort(-_sizes(gradients))[:most]]
    ordered = sorted(
        permutations(range(len(rows)), 2), key=lambda ij: -_sizes(gradients[ij[0]] - gradients[ij[1]])
    )
    return [(rows[i], rows[j]) for i, j in ordered[: 2 * most : 2]]


def _quiet(model: RowModel, schedule: Schedule, rows: list[PublicRow], silent: PublicRow) -> list[PublicRow]:
    """Rows between ``silent`` and the extremes, as far out as their gradients stay below the clip."""
    for share in _SHARES:
        between = [_between(silent, row, share) for row in rows]
        gradients = _gradients(model, schedule, between)
        below = np.linalg.norm(gradients, axis=-1).max(axis=1) < _BELOW * schedule.clip
        quiet = [row for row, fits in zip(between, below, strict=True) if fits]
        if len(quiet) >= 2 and _sizes(_gradients(model, schedule, quiet)).max() > 0:
            return quiet
    return []


def _between(silent: PublicRow, row: PublicRow, share: float) -> PublicRow:
    """So far from ``silent`` to ``row`` in real columns; whole numbers as in ``row``."""

    def blend(zero: npt.ArrayLike, value: npt.ArrayLike) -> npt.ArrayLike:
        if not np.issubdtype(np.asarray(value).dtype, np.floating):
            return value
        return (1 - share) * np.asarray(zero) + share * np.asarray(value)

    return {name: blend(silent[name], value) for name, value in row.items()}


def _sizes(gradients: FloatArray) -> FloatArray:
    """Mean norms over the probes, which are the last axis but one."""
    sizes: FloatArray = np.linalg.norm(gradients, axis=-1).mean(axis=-1)
    return sizes


def _words(row: PublicRow | None) -> str:
    if row is None:
        return "absent"
    return " ".join(f"{name}={np.asarray(value).tolist()}" for name, value in sorted(row.items()))
