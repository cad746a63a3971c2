"""The private test of the data's curvature: what it certifies, how a row moves it, and what follows it."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom, norm

import private_mcmc as pmc
from private_mcmc import accounting as acc
from private_mcmc.domains import Ball, Binary, Box, Counts, Person, Rows
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.errors import DeclarationError, NotYetSupported, ReleaseError
from private_mcmc.kernels.gradient.clipped import clipped_gradient
from private_mcmc.kernels.gradient.clipping import whitening
from private_mcmc.model import read
from private_mcmc.preflight import curvature
from private_mcmc.release.curvature import plan_curvature_test
from private_mcmc.release.ledger.filter import filter_for
from private_mcmc.schedule import Schedule
from tests.zoo.counts import poisson
from tests.zoo.linear import linear
from tests.zoo.logistic import logistic

N = 6
MODELS = {
    "linear": (linear, Rows(X=Ball(1.0, dim=2), y=Box(-1, 1))),
    "logistic": (logistic, Rows(X=Ball(1.0, dim=2), y=Binary())),
    "poisson": (poisson, Rows(X=Ball(1.0, dim=2), y=Counts(4))),
}
SETS = {
    "ball": {"diameter": 2.0},
    "ball in a metric": {"diameter": 2.0, "preconditioner": ((2.0, 0.5), (0.5, 0.5))},
    "box": {"box": (0.7, 1.5), "diameter": 4.5, "preconditioner": (1.0, 0.5)},
}


def schedule(**changes) -> Schedule:
    base = {
        "adjacency": "replace_one",
        "num_rows": N,
        "dim": 2,
        "step_size": 0.01,
        "num_steps": 50,
        "clip": 3.0,
        "diameter": 2.0,
        "release": "last",
    }
    return Schedule(**(base | changes))


@functools.cache
def reading_of(name: str):
    model, rows = MODELS[name]
    return read(model, rows, n=N)


@functools.cache
def planned(name: str, where: str, clip: float = 3.0):
    reading = reading_of(name)
    return reading, plan_curvature_test(reading, schedule(clip=clip, **SETS[where]), gdp=1.0, failure=0.01)


def drawn(rows: Rows, seed: int, n: int = N):
    with jax.enable_x64(True):
        return rows.project(rows.synthetic(seed, n))


EVERY = [("linear", "ball"), ("logistic", "ball in a metric"), ("poisson", "box")]


@pytest.mark.long
@pytest.mark.parametrize(("name", "where"), EVERY)
@pytest.mark.parametrize("clip", [1.5, 9.0])
def test_the_clipped_potential_is_as_convex_on_the_set_as_its_rows_certify(name, where, clip):
    reading, test = planned(name, where, clip)
    change = whitening(test.schedule.preconditioner, 2)
    gradient = clipped_gradient(reading, change, clip)
    rng = np.random.default_rng(0)
    total = jax.jit(gradient.total)
    found = []
    with jax.enable_x64(True):
        for seed in range(3):
            rows = drawn(reading.rows, seed)
            present = jnp.arange(N) < N - 1
            least = test.smallest_eigenvalue(rows, present)
            found.append(least)
            prepared = gradient.prepare(rows, present)
            for _ in range(20):
                u, v = _points(rng, test.schedule)
                gap = float((total(u, prepared) - total(v, prepared)) @ (u - v))
                assert gap >= least * float((u - v) @ (u - v)) * (1 - 1e-12) - 1e-12
    assert clip < 9 or max(found) > 0  # an idle clip leaves curvature to certify


@pytest.mark.long
def test_a_row_whose_slope_the_kernel_holds_below_its_bound_certifies_nothing():
    # C = R: clipping is idle but for its slack, and the slopes of far predictors lie within it.
    reading = reading_of("logistic")
    test = plan_curvature_test(reading, schedule(clip=1.0, diameter=40.4), gdp=1.0, failure=0.01)
    gradient = clipped_gradient(reading, whitening(None, 2), 1.0, states=1)
    with jax.enable_x64(True):
        rows = {"X": jnp.asarray([[1.0, 0.0]] * N), "y": jnp.ones(N, dtype=int)}
        prepared = gradient.prepare(rows, jnp.ones(N, dtype=bool))
        ends = [gradient.total(jnp.asarray([at, 0.0]), prepared)[0] for at in (-20.2, -20.1)]
        designs, weights = test._certified(rows, jnp.ones(N, dtype=bool))
        assert float(ends[1] - ends[0]) >= float(weights.sum()) * 0.1 * (1 - 1e-6)
    assert np.all(np.linalg.norm(designs, axis=1) == 1.0)


def _points(rng, tested: Schedule):
    """Two whitened points of the set, often at its edge."""
    scale = 1.0 if rng.random() < 0.5 else rng.random()
    if tested.box is None:
        pair = rng.normal(size=(2, 2))
        return jnp.asarray(scale * pair / np.linalg.norm(pair, axis=1, keepdims=True) * tested.diameter / 2)
    half = np.asarray(tested.box) / np.sqrt(np.asarray(tested.preconditioner))
    return jnp.asarray(scale * rng.choice([-1, 1], size=(2, 2)) * half)


@pytest.mark.some(1)
@pytest.mark.parametrize(("name", "where"), EVERY)
def test_one_row_moves_the_eigenvalue_by_at_most_the_noise_s_sensitivity(name, where):
    reading, test = planned(name, where)
    everyone = jnp.ones(N, dtype=bool)

    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 2**31), st.integers(0, 2**31), st.integers(0, N - 1))
    def check(seed: int, other: int, at: int) -> None:
        rows, more = drawn(reading.rows, seed), drawn(reading.rows, other)
        swapped = {key: value.at[at].set(more[key][at]) for key, value in rows.items()}
        here = test.smallest_eigenvalue(rows, everyone)
        for moved in (
            test.smallest_eigenvalue(swapped, everyone),
            test.smallest_eigenvalue(rows, everyone.at[at].set(False)),
        ):
            assert abs(here - moved) <= test.cap <= test.noise.sensitivity

    check()


@pytest.mark.slow
def test_the_bound_exceeds_the_eigenvalue_no_more_often_than_promised():
    """A false alarm has probability 1e-6."""
    reading, test = planned("linear", "ball")
    test = replace(test, failure=0.1)
    rows, present = drawn(reading.rows, 3), jnp.ones(N, dtype=bool)
    truth, draws = test.smallest_eigenvalue(rows, present), 400
    floors = [test.release(rows, present) for _ in range(draws)]
    exceeded = sum(floor.released - floor.margin > truth for floor in floors)
    assert binom.sf(exceeded - 1, draws, 0.1) > 1e-6
    assert exceeded > 0 or binom.pmf(0, draws, 0.1) > 1e-6
    assert all(floor.lower >= 0 for floor in floors)


CELLS = np.linspace(-1.0, 1.0, 401)
EDGES = np.concatenate([[-np.inf], (CELLS[1:] + CELLS[:-1]) / 2, [np.inf]])
TEMPERS = np.geomspace(0.01, 1.0, 25)


def last_state(rows, temper, steps, step) -> np.ndarray:
    """Masses of the last state of a chain projected on [−1, 1], prior N(0, 1), unit noise."""
    pull = CELLS + temper * sum(x * (x * CELLS - y) for x, y in rows)
    moved = CELLS - step * pull
    matrix = np.diff(ndtr((EDGES[:, None] - moved[None, :]) / math.sqrt(2 * step)), axis=0)
    mass = np.zeros(len(CELLS))
    mass[len(CELLS) // 2] = 1.0
    for _ in range(steps):
        mass = matrix @ mass
    return mass


def laws_of_test_and_run(margin: float, failure: float):
    """Exact joint laws of (λ̃, last state) for two data sets, and the statement."""
    steps, step, sd, share = 12, 0.08, 0.5, 1.0
    common = [(1.0, 0.2), (0.9, -0.4), (1.0, 0.1), (-0.8, 0.3)] * 2
    data = [[*common, (1.0, 1.0)], [*common, (1.0, -1.0)]], [[*common, (1.0, 1.0)], [*common, (0.0, 1.0)]]
    public = schedule(num_rows=9, dim=1, clip=2.0 + 1e-6, num_steps=steps, step_size=step)
    nodes = np.linspace(2.0, 12.0, 101)
    runs = {}
    for node in nodes:
        floor = acc.CurvatureFloor(
            released=float(node), margin=margin, rounding=0.0, noise_sd=sd, failure=failure
        )
        runs[node] = max(w for w in TEMPERS if _price(w, floor, public) <= share)
    statement = acc.ExceptWithProbability(acc.Gaussian(math.hypot(1 / sd, share)), failure)
    joints = []
    for pair in data:
        joints.append(
            [
                np.stack(
                    [
                        norm.pdf(node, sum(x * x for x, _ in rows), sd)
                        * (nodes[1] - nodes[0])
                        * last_state(rows, runs[node], steps, step)
                        for node in nodes
                    ]
                )
                for rows in pair
            ]
        )
    return joints, statement, runs


def _price(temper, floor, public) -> float:
    proved = acc.Curvature(
        strong_convexity=1.0,
        smoothness=1.0 + 9 * temper,
        prior_strong_convexity=1.0,
        prior_smoothness=1.0,
        source="Normal prior, unit noise",
    )
    found = acc.langevin_statement(
        replace(public, temper=float(temper)), floor.strengthen(proved, float(temper))
    )
    return found.gdp


@pytest.mark.long
def test_exact_divergence_of_test_and_run_stays_below_the_statement(record_property):
    joints, statement, runs = laws_of_test_and_run(margin=0.5 * 1.6448537, failure=0.05)
    assert len(set(runs.values())) > 5  # the test decides how the run is tempered
    worst = 0.0
    for pair in joints:
        for p, q in itertools.permutations(pair, 2):
            for epsilon in np.linspace(0, 8, 9):
                exact = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
                ours = statement.delta(float(epsilon))
                assert exact <= ours * (1 + 1e-3) + 1e-9
                worst = max(worst, exact / ours)
    record_property("largest exact/bound", worst)
    assert worst > 0.3


def test_prices_of_the_run_rest_on_the_curvature_that_was_found():
    poor = acc.CurvatureFloor(released=1.0, margin=2.0, rounding=0.0, noise_sd=0.5, failure=0.01)
    rich = replace(poor, released=10.0)
    public = schedule(num_rows=9, dim=1, clip=2.0, num_steps=200, step_size=0.1)
    assert poor.lower == 0
    assert _price(0.8, rich, public) < 0.5 * _price(0.8, poor, public)


@pytest.mark.slow
def test_statement_of_the_test_names_its_sensitivity_and_verifies():
    reading, test = planned("logistic", "ball")
    rows = drawn(reading.rows, 1)
    released = test.release(rows, jnp.ones(N, dtype=bool))
    proved = released.strengthen(curvature(reading, test.schedule), test.schedule.temper)
    run = acc.langevin_statement(test.schedule, proved)
    whole = acc.unless_test_fails(acc.compose(test.statement, run), released)
    assert test.statement.gdp == pytest.approx(1.0, rel=1e-6)
    assert whole.verify()
    assert whole.gdp is None
    assert whole.delta(100.0) >= test.failure
    assert "none is claimed for the posterior" in str(whole)


def test_a_ledger_of_gaussian_costs_does_not_forget_the_failure():
    reading, test = planned("linear", "ball")
    released = test.release(drawn(reading.rows, 1), jnp.ones(N, dtype=bool))
    whole = acc.unless_test_fails(test.statement, released)
    with pytest.raises(ReleaseError, match="basic"):
        filter_for(pmc.Target(1.0, 1e-6)).cost(whole)
    assert filter_for(pmc.Target(8.0, 0.05), "basic").cost(whole) <= 1


@pytest.mark.slow
def test_curvature_is_refused_where_nothing_bounds_it():
    reading = read(logistic, MODELS["logistic"][1], n=N)
    with pytest.raises(DeclarationError, match="bounded set"):
        plan_curvature_test(reading, schedule(diameter=math.inf), gdp=1.0, failure=0.01)
    probit = read(_probit, MODELS["logistic"][1], n=N)
    with pytest.raises(NotYetSupported, match="Normal"):
        plan_curvature_test(probit, schedule(), gdp=1.0, failure=0.01)
    with pytest.raises(DeclarationError, match="probability"):
        acc.CurvatureFloor(released=1.0, margin=0.1, rounding=0.0, noise_sd=1.0, failure=0.01)


def _probit(X, y=None):
    import numpyro
    import numpyro.distributions as dist

    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=jax.scipy.special.ndtr(X @ w)), obs=y)


PERSONS = Rows(X=Ball(1.0, dim=2), y=Binary(), who=Person(3))


@pytest.fixture(scope="module")
def of_persons():
    reading = read(logistic, PERSONS, n=N)
    draft = schedule(clip=3.0, unit=reading.unit, **SETS["ball"])
    return reading, plan_curvature_test(reading, draft, gdp=1.0, failure=0.01)


def test_one_person_moves_the_eigenvalue_by_at_most_the_noise_s_sensitivity(of_persons):
    """All rows of a person against none, and a planted fault: the sensitivity of a single row."""
    reading, test = of_persons
    rows = {"X": np.tile(np.eye(2)[[0, 0, 0, 1, 1, 1]][:, None], (1, 3, 1)), "y": np.ones((N, 3), int)}
    full = {**rows, OWN_ROWS: np.ones((N, 3), int)}
    fewer = {**full, OWN_ROWS: np.repeat(np.arange(N) > 0, 3).reshape(N, 3).astype(int)}
    everyone = jnp.ones(N, dtype=bool)
    with jax.enable_x64(True):
        moved = test.smallest_eigenvalue(full, everyone) - test.smallest_eigenvalue(fewer, everyone)
        absent = test.smallest_eigenvalue(full, everyone.at[0].set(False))
    assert absent == test.smallest_eigenvalue(fewer, everyone)
    assert test.cap / 3 < moved <= test.cap <= test.noise.sensitivity
    assert test.statement.unit == reading.unit and test.statement.verify()


@pytest.mark.long
def test_persons_whose_clip_is_idle_are_as_convex_as_their_rows_certify(of_persons):
    reading, test = of_persons
    gradient, rng = clipped_gradient(reading, whitening(None, 2), 3.0, 1), np.random.default_rng(0)
    total, everyone = jax.jit(gradient.total), jnp.ones(N, dtype=bool)
    with jax.enable_x64(True):
        for seed in range(3):
            rows = drawn(reading.rows, seed)
            least, prepared = test.smallest_eigenvalue(rows, everyone), gradient.prepare(rows, everyone)
            assert least > 0
            for _ in range(20):
                u, v = _points(rng, test.schedule)
                gap = float((total(u, prepared) - total(v, prepared)) @ (u - v))
                assert gap >= least * float((u - v) @ (u - v)) * (1 - 1e-12) - 1e-12


def test_persons_whose_clip_may_act_are_refused():
    """Their clipped sum is the gradient of nothing convex, whatever the rows certify."""
    reading = read(logistic, PERSONS, n=N)
    draft = schedule(clip=2.9, unit=reading.unit, **SETS["ball"])
    with pytest.raises(DeclarationError, match="at least 3 times"):
        plan_curvature_test(reading, draft, gdp=1.0, failure=0.01)
