"""Plans of one declared run: a draw, or averages with noise, of a chain whose states stay hidden.

What one row moves a hidden state by grows with the Langevin time ``γT``, and what the start leaves of its own
distance falls with it exponentially. In the metric of the posterior's own covariance a time of a few units is
enough for the second; the first is then about what one row moves a posterior mean by. Step, clip, steps and
burn-in are those with the smallest error on synthetic tables, of each of which the posterior is taken for
Normal. No statement rests on any of it: the run is priced as every declared run is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting import Curvature, Statement, average_sensitivity
from private_mcmc.arguments import Guarantee
from private_mcmc.domains import Rows
from private_mcmc.domains.rows import project_rows
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.kernels.langevin import PrivateULA, as_matrix
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import people
from private_mcmc.planning.estimates import floored, prior_curvature, root_of, row_slopes
from private_mcmc.planning.facts import prior_of
from private_mcmc.planning.prediction import Expected, Prediction
from private_mcmc.planning.stages import Array
from private_mcmc.potential.potential import curvature
from private_mcmc.preflight.estimate import outcomes_of, typed
from private_mcmc.release.price import bind, movement, price
from private_mcmc.release.released import Expectations
from private_mcmc.report import Facts, Report, Reported, Table, at_most, number
from private_mcmc.schedule import Schedule
from private_mcmc.system import RUN_ONCE
from private_mcmc.target import Target

Hidden: TypeAlias = Literal["last"] | Expectations

_TABLES, _ROWS = 4, 512
# Clips, over the root mean square norm of a row's gradient; Langevin times; shares of the largest step that
# contracts; shares of the steps that are left out. All in the metric.
_CLIPS, _TIMES, _STEPS = (1.0, 1.5, 2.5, 4.0), np.geomspace(0.3, 30.0, 21), (0.25, 0.05)
_BURN_INS = (0.0, 0.5, 0.8, 0.95)
_MOST_STEPS, _MOST_CHAINS = 20_000, 32
# Weights of the likelihood of a draw; how many runs are priced; curvature that counts as none.
_WEIGHTS, _PRICED, _FLAT = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01), 400, 1e-6
# The share of the whole error that a finite chain's own noise may have, where more chains lower it.
_SAMPLING = 0.25


@dataclass(frozen=True, eq=False, kw_only=True)
class DeclaredPlan(Reported):
    """One declared run that meets ``target`` whatever the data, with the error to expect of it.

    Attributes:
        kernel: with its step size, clip, weight and metric.
        rows, target, n, guarantee: as they were given.
        release: ``"last"``, or the expectations with their burn-in.
        start: flat and unconstrained, the prior's medians.
        prediction: of expectations, the error of their values, in posterior sds; of a draw, how far its law
            is from the posterior's, in posterior sds (the 2-Wasserstein distance of Normal laws).
        statement: the run's own.

    Example:
        >>> from private_mcmc.models import logistic, logistic_rows
        >>> chosen = pmc.plan(
        ...     logistic, logistic_rows(2), pmc.Target(epsilon=1.0, delta=0), n=10_000, guarantee="run",
        ...     release=pmc.Expectations("w"),
        ... )
        >>> chosen.statement.epsilon(0), chosen.prediction.rms < 2
        (1.0, True)
    """

    kernel: PrivateULA
    rows: Rows
    target: Target
    release: Hidden
    n: int
    num_steps: int
    num_chains: int
    guarantee: Guarantee
    start: Array = field(repr=False)
    prediction: Prediction
    statement: Statement = field(repr=False)

    def report(self) -> Report:
        """The plan in words and numbers."""
        expected, averages = self.prediction, isinstance(self.release, Expectations)
        spent = self.statement.epsilon(self.target.delta)
        items = (
            ("guarantee", self.guarantee),
            ("released", "averages of hidden states, with noise" if averages else "the last state"),
            ("target", f"ε = {at_most(self.target.epsilon)} at δ = {at_most(self.target.delta)}"),
            ("this run", f"ε = {at_most(spent)}, {self.target.adjacency}, n = {self.n:,}"),
            (
                "predicted error of the values" if averages else "a draw's law, from the posterior",
                f"{number(expected.rms, 2)} posterior sds",
            ),
            ("of it, clipped rows and the start", number(expected.bias, 2)),
            ("of it, noise" if averages else "of it, another width", number(expected.monte_carlo, 2)),
            ("chains and steps", f"{self.num_chains} of {self.num_steps:,}"),
            ("weight of the likelihood", number(self.kernel.temper)),
        )
        rows = tuple((one.name, number(one.error, 2), number(one.sd, 2)) for one in expected.coefficients)
        each = Table(("value", "predicted error", "sd without privacy"), rows, title="On synthetic people")
        return Report("A plan of one run", (Facts(items), *((each,) if rows else ())))


def plan_declared(
    reading: RowModel,
    rows: Rows,
    target: Target,
    n: int,
    release: object,
    guarantee: Guarantee,
    temper: float,
) -> DeclaredPlan:
    """The run with the smallest predicted error that meets the target; ``temper`` is certified, or 1.

    Raises:
        DeclarationError: for a release that no such plan is made for.
        NotPrivate: where nothing is proved of hidden states, or no run meets the target.
    """
    if release != "last" and not isinstance(release, Expectations):
        raise DeclarationError(f"release={release!r}: plans release 'path', 'last' or Expectations(…).")
    tables, start = _tables(reading, n), prior_of(reading).centre
    search = _Search(reading, rows, target, n, guarantee, tables, start, _metric(tables, temper))
    found = search.averages(release, temper) if isinstance(release, Expectations) else search.draw(temper)
    if found is None:
        raise NotPrivate(
            f"{'Expectations(…)' if release != 'last' else 'the last state'}: of this model's hidden states "
            f"nothing is proved that meets the target ({reading.argument}). "
            "A path needs no such proof: release='path'."
        )
    return found


@dataclass(frozen=True, eq=False)
class _Table:
    """A synthetic table at the parameter that its outcomes were drawn at, about its posterior's mode.

    Attributes:
        theta: that parameter, ``(p,)``.
        slopes: of every row at it, and a ``width`` further along each coordinate, ``(1 + p, rows, p)``.
        prior: the Hessian of ``K``, ``(p, p)``.
        each: how many rows of the private table one row stands for.
    """

    theta: Array
    slopes: Array
    prior: Array
    width: Array
    each: float

    def clipped(self, root: Array, clip: float, temper: float) -> tuple[Array, Array]:
        """``AᵀHA`` of clipped rows and prior, and ``Aᵀ`` of the score that clipping leaves at ``theta``."""
        whitened = self.slopes @ root
        norms = np.linalg.norm(whitened, axis=2, keepdims=True)
        sums = temper * self.each * (whitened * np.minimum(1.0, clip / np.maximum(norms, 1e-300))).sum(axis=1)
        bend = root.T @ ((sums[1:] - sums[0]) / self.width[:, None])
        lost = sums[0] - temper * self.each * whitened[0].sum(axis=0)
        return (bend + bend.T) / 2 + root.T @ self.prior @ root, lost

    def posterior(self, root: Array) -> Array:
        """The covariance of ``θ`` without privacy, of a Normal posterior."""
        values, axes = np.linalg.eigh(self.clipped(root, math.inf, 1.0)[0])
        turned = root @ axes
        return np.asarray((turned / np.maximum(values, _FLAT)) @ turned.T)


def _tables(reading: RowModel, n: int) -> list[_Table]:
    prior, outcomes, found = prior_of(reading), outcomes_of(reading), []
    width = 1e-4 * prior.scale
    with jax.enable_x64(True):
        for index in range(_TABLES):
            theta = prior.shrunk(index, 0.5)
            # Some rows fill what is declared: a clip for people alone would cut them.
            domains = reading.rows
            given = people(domains, _ROWS, index) if index % 2 else domains.synthetic(index, _ROWS)
            rows = outcomes(theta, typed(reading, given), np.random.default_rng(index))
            thetas = np.vstack([theta, theta + np.diag(width)])
            each = np.asarray(row_slopes(reading, thetas, project_rows(domains, rows)))
            bend = np.asarray(prior_curvature(reading, theta))
            if np.all(np.isfinite(each)) and np.all(np.isfinite(bend)):
                found.append(_Table(theta, each, bend, width, n / _ROWS))
    if not found:
        raise NotPrivate("plans of one run are made on synthetic tables, and none has finite gradients.")
    return found


def _metric(tables: Sequence[_Table], temper: float) -> Array:
    """``A`` with ``AAᵀ`` the inverse of the tables' mean curvature."""
    identity = np.eye(len(tables[0].theta))
    curvature = np.mean([table.clipped(identity, math.inf, temper)[0] for table in tables], axis=0)
    return root_of(floored(curvature, _FLAT * float(np.linalg.norm(curvature, 2))))


@dataclass(frozen=True, eq=False)
class _Chain:
    """A chain with what is proved of it, and its law on every table.

    Where the curvature is diagonal ``x_k − x* = ρ^k(x_0 − x*) + noise`` with ``ρ = 1 − γλ`` in each
    coordinate, and ``x*`` where the clipped rows settle.

    Attributes:
        laws: of every table the axes, ``ρ``, ``x_0`` and ``x*``.
    """

    kernel: PrivateULA
    step_size: float
    num_steps: int
    known: Curvature
    laws: Sequence[tuple[Array, Array, Array, Array]]

    def average(self, first: int) -> tuple[Array, Array]:
        """Means, from the modes, and covariances of averages of ``θ`` from state ``first`` on, by table."""
        kept, step = self.num_steps - first + 1, np.arange(1, self.num_steps + 1)[:, None]
        means, covariances = [], []
        for axes, keep, begun, settled in self.laws:
            gap = np.maximum(1 - keep, 1e-12)
            left = (keep**first - keep ** (self.num_steps + 1)) / gap / kept
            # What the noise of one step adds to the sum of all kept states.
            moves = (keep ** np.maximum(first - step, 0) - keep ** (self.num_steps + 1 - step)) / gap
            spread = 2 * self.step_size * np.square(moves).sum(axis=0) / kept**2
            means.append(axes @ (settled + left * (begun - settled)))
            covariances.append((axes * spread) @ axes.T)
        return np.stack(means), np.stack(covariances)


@dataclass(frozen=True, eq=False)
class _Search:
    """Runs to compare, in the metric ``AAᵀ``."""

    reading: RowModel
    rows: Rows
    target: Target
    n: int
    guarantee: Guarantee
    tables: Sequence[_Table]
    start: Array
    root: Array

    def chains(self, temper: float) -> Iterator[_Chain]:
        """Those that are proved not to part two states."""
        squares = [np.square(table.slopes[0] @ self.root).sum(axis=1).mean() for table in self.tables]
        metric = as_matrix("preconditioner", self.root @ self.root.T)
        model, public = self.reading.model, self.reading.public
        kernel = partial(PrivateULA, model, temper=temper, preconditioner=metric, model_args=public)
        for clip in (math.sqrt(float(np.mean(squares))) * np.array(_CLIPS)).tolist():
            known = curvature(self.reading, self.schedule(kernel(step_size=1.0, clip=clip), "last", 1, 1))
            if not known.smoothness < math.inf:
                continue
            for size in (share * 2 / known.smoothness for share in _STEPS):
                laws = []
                for table in self.tables:
                    bend, lost = table.clipped(self.root, clip, temper)
                    values, axes = np.linalg.eigh(bend)
                    values = np.maximum(values, _FLAT)
                    begun = axes.T @ np.linalg.solve(self.root, self.start - table.theta)
                    keep = np.maximum(1 - size * values, 0.0)
                    laws.append((self.root @ axes, keep, begun, -(axes.T @ lost) / values))
                for steps in (math.ceil(time / size) for time in _TIMES):
                    if steps <= _MOST_STEPS:
                        yield _Chain(kernel(step_size=size, clip=clip), size, steps, known, laws)

    def schedule(self, kernel: PrivateULA, release: Hidden, steps: int, chains: int) -> Schedule:
        """What runs."""
        return kernel.schedule(
            adjacency=self.target.adjacency,
            num_rows=self.n,
            dim=self.reading.dim,
            num_steps=steps,
            num_chains=chains,
            release=release.average(steps) if isinstance(release, Expectations) else release,
            unit=self.reading.unit,
        )

    def plan(self, of: _Chain, release: Hidden, chains: int, expected: Prediction) -> DeclaredPlan:
        """The chain as a plan, priced as it will be when it runs."""
        averaged = release if isinstance(release, Expectations) else None
        schedule = self.schedule(of.kernel, release, of.num_steps, chains)
        return DeclaredPlan(
            kernel=of.kernel,
            rows=self.rows,
            target=self.target,
            release=release,
            n=self.n,
            num_steps=of.num_steps,
            num_chains=chains,
            guarantee=self.guarantee,
            start=self.start,
            prediction=expected._replace(discretisation=of.step_size * of.known.smoothness / 2),
            statement=price(self.reading, schedule, self.target, averaged)[0],
        )

    def draw(self, temper: float) -> DeclaredPlan | None:
        """The last state whose law is nearest to the posterior, of those that meet the target."""
        sds = _roots(np.stack([table.posterior(self.root) for table in self.tables]))
        found = []
        for weight in _WEIGHTS if self.guarantee == "run" else (1.0,):
            for of in self.chains(temper * weight):
                mean, covariance = of.average(of.num_steps)
                bias, wide = _rms(mean / sds), _rms(_roots(covariance) / sds - 1)
                found.append((Prediction(math.hypot(bias, wide), bias, wide, 0.0), of))
        for expected, of in sorted(found, key=lambda one: one[0].rms)[:_PRICED]:
            chosen = self.plan(of, "last", 1, expected)
            if chosen.statement.delta(self.target.epsilon) <= self.target.delta:
                return chosen
        return None

    def averages(self, release: Expectations, temper: float) -> DeclaredPlan | None:
        """The averages with the smallest error: of the start, of clipped rows, and of all noise."""
        with jax.enable_x64(True):
            given = release.bounds
            functions = tuple(bind(self.reading, name, what, given.get(name)) for name, what in release.items)
            slope = jax.jit(
                jax.jacobian(lambda at: jnp.concatenate([f.evaluate(at) for f in functions])),
                compiler_options=RUN_ONCE,
            )
            slopes = np.stack([np.asarray(slope(table.theta)) for table in self.tables])
        turned = slopes.transpose(0, 2, 1)
        sds = _roots(slopes @ np.stack([table.posterior(self.root) for table in self.tables]) @ turned)
        # Of what has no slope, as whether a coefficient is positive, half of its range stands for an sd.
        half = [np.full(f.size, f.width / 2 if f.width < math.inf else 1.0) for f in functions]
        sds = np.where(sds > 0, sds, np.concatenate(half))
        names = [f"{f.name}[{k}]" if f.shape else f.name for f in functions for k in range(f.size)]
        usual, best = sds.mean(axis=0), None
        for of in self.chains(temper):
            shares = {int(share * of.num_steps) for share in _BURN_INS}
            tried = sorted(shares) if release.burn_in is None else [release.burn_in]
            for skipped in (one for one in tried if one < of.num_steps):
                asked = release.with_burn_in(skipped)
                schedule = self.schedule(of.kernel, asked, of.num_steps, 1)
                most = movement(functions, average_sensitivity(schedule, of.known), schedule.preconditioner)
                # The sd of the noise of every value, about.
                noise = math.sqrt(2.0) * most.l1 * most.units / (asked.epsilon or self.target.epsilon)
                mean, covariance = of.average(skipped + 1)
                off = np.einsum("tvp,tp->tv", slopes, mean) / sds
                bias, added = _rms(off), _rms(noise / sds)
                own = _rms(_roots(slopes @ covariance @ turned) / sds)
                # More chains cost time alone.
                enough = (own / (_SAMPLING * max(math.hypot(bias, added), 1e-3))) ** 2
                chains = min(max(math.ceil(enough), 1), _MOST_CHAINS)
                scatter = math.hypot(added, own / math.sqrt(chains))
                expected = Prediction(math.hypot(bias, scatter), bias, scatter, 0.0)
                if best is None or expected.rms < best[2].rms:
                    errors = np.sqrt(np.mean(np.square(off * usual) + noise**2, axis=0))
                    named = tuple(map(Expected, names, errors.tolist(), usual.tolist()))
                    best = of, asked, expected._replace(coefficients=named), chains
        return None if best is None else self.plan(best[0], best[1], best[3], best[2])


def _roots(matrices: Array) -> Array:
    """Of the diagonals: sds."""
    return np.asarray(np.sqrt(np.diagonal(matrices, axis1=-2, axis2=-1)))


def _rms(values: Array) -> float:
    return math.sqrt(float(np.mean(np.square(values))))
