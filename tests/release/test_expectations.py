"""Expectations: declared first, priced first, and never moved by a row more than was charged."""

import functools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from private_mcmc.accounting import Curvature, average_sensitivity
from private_mcmc.domains import Binary, Rows
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.model import read
from private_mcmc.release import Expectations, plan_expectations
from private_mcmc.release.price import ROUNDING_SHARE, movement
from private_mcmc.target import Target
from tests import schedules

SECRET = {"source": "operating system", "generator": "chacha20"}
TARGET = Target(1.0, 1e-6)
CURVATURE = Curvature(strong_convexity=1.0, smoothness=4.0)


def model(y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    numpyro.sample("p", dist.Beta(2.0, 2.0))
    numpyro.sample("u", dist.Uniform(-1.0, 3.0))
    numpyro.sample("s", dist.Exponential(1.0))
    numpyro.deterministic("doubled", 2 * w[0] - w[1])
    numpyro.deterministic("chance", jax.nn.sigmoid(w[0]))
    numpyro.deterministic("ratio", w[0] * w[1])
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=w.sum()), obs=y)


@functools.cache
def row_model():
    return read(model, Rows(y=Binary()), n=100)


def schedule(expectations, num_steps=100, **changes):
    release = expectations.average(num_steps)
    fields = dict(dim=6, step_size=0.05, num_steps=num_steps, temper=0.2, release=release)
    return schedules.schedule(**(fields | changes))


def planned(expectations, target=TARGET, curvature=CURVATURE, **changes):
    return plan_expectations(expectations, row_model(), schedule(expectations, **changes), curvature, target)


def names(plan):
    cuts = np.cumsum([f.size for f in plan.functions])[:-1]
    parts = zip(plan.functions, np.split(plan.units, cuts), strict=True)
    return {f.name: unit.reshape(f.shape) for f, unit in parts}


def test_coordinates_move_with_the_chain_and_all_else_by_its_range():
    narrow = {"narrow": lambda s: s["w"]}
    expectations = Expectations(
        "w", "p", "u", {"q": lambda s: s["s"] > 1.0}, narrow, bounds={"narrow": (0.0, 1e-3)}
    )
    distance = average_sensitivity(schedule(expectations), CURVATURE)
    moved = names(planned(expectations))
    np.testing.assert_allclose(moved["w"], distance, rtol=1e-8)
    for name, width in (("p", 1.0), ("u", 4.0), ("q", 1.0), ("narrow", 1e-3)):
        np.testing.assert_allclose(moved[name], width, rtol=1e-12)
    stretched = names(planned(expectations, preconditioner=(4.0, 1.0, 1.0, 1.0, 1.0, 1.0)))["w"]
    np.testing.assert_allclose(stretched[0] / stretched[1], 2.0, rtol=1e-8)


def test_a_function_that_returns_another_shape_later_is_refused_before_it_is_paid_for():
    shapes = iter([(), (3,), ()])
    turning = {"turning": lambda sites: jnp.zeros(next(shapes))}
    with pytest.raises(DeclarationError, match="same shape twice"):
        planned(Expectations(turning, bounds=(0.0, 1.0)))


def test_what_coordinates_round_off_in_a_metric_is_in_the_price():
    """The product ``Au`` rounds, in a box of ``b``, by ``p^{3/2}ub`` of what a coordinate moves by 1."""
    metric = tuple(map(tuple, (np.eye(6) + 1).tolist()))
    given = {"preconditioner": metric, "clip": 1e-3, "rounding": 1e-3}
    proved = replace(CURVATURE, prior_smoothness=1.0, prior_slope=1.0)
    wide, narrow = (planned(Expectations("w"), curvature=proved, within=b, **given) for b in (1e5, 1.0))
    more = wide.noise.sensitivity - narrow.noise.sensitivity
    distance = wide.units[0] / math.sqrt(2)
    assert more == pytest.approx(3 * 2 * 6**1.5 * 2.0**-53 * 1e5 / distance, rel=1e-3)


def test_a_chain_that_is_not_known_to_contract_moves_values_by_their_bounds_alone():
    wild = Curvature()
    with pytest.raises(DeclarationError, match="nothing bounds"):
        planned(Expectations("w"), curvature=wild)
    assert planned(Expectations("w", bounds={"w": (-2.0, 2.0)}), curvature=wild).units == pytest.approx(4.0)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 3.0))
def test_no_move_of_the_chain_exceeds_the_joint_bounds(seed, distance):
    """Every direction of the metric's ball, whatever the metric; free coordinates and capped ones."""
    random = np.random.default_rng(seed)
    root = random.normal(size=(6, 6))
    metric = root @ root.T + 0.1 * np.eye(6)
    functions = several()
    for shape in (None, np.diag(metric), (metric + metric.T) / 2):
        given = None if shape is None else shape.tolist()
        bound = movement(functions, distance, given)
        half = (
            np.eye(6) if shape is None else np.linalg.cholesky(shape if shape.ndim == 2 else np.diag(shape))
        )
        directions = random.normal(size=(200, 6))
        moves = distance * directions / np.linalg.norm(directions, axis=1, keepdims=True) @ half.T
        changes = np.concatenate([moves[:, W], np.ones((200, 1)), np.clip(moves[:, W], -0.3, 0.3)], axis=1)
        scaled = np.abs(changes) / bound.units
        assert scaled.max() <= 1
        assert scaled.sum(axis=1).max() <= bound.l1
    assert movement(functions[:1], distance, None).l1 == pytest.approx(math.sqrt(3), rel=1e-8)


W = next(site.slice for site in read(lambda y: model(y), Rows(y=Binary()), n=100).sites if site.name == "w")


@functools.cache
def several():
    clamped = {"clamped": lambda sites: sites["w"]}
    declared = Expectations("w", "p", clamped, bounds={"clamped": (-0.15, 0.15)})
    return planned(declared).functions


def test_the_price_is_known_before_the_run_and_meets_the_target():
    laplace = planned(Expectations("w", epsilon=0.25))
    assert laplace.statement.epsilon(0.0) == pytest.approx(0.25)
    assert laplace.statement.verify()
    np.testing.assert_allclose(laplace.noise_sd, laplace.noise.sd * laplace.units)


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 60]))
def test_coupled_chains_on_adjacent_data_stay_within_the_charge(seed, burn_in):
    """A quadratic with adjacent linear terms, whose worst case is the charge itself."""
    random = np.random.default_rng(seed)
    expectations = Expectations("w", "p", burn_in=burn_in)
    record = schedule(expectations)
    plan = plan_expectations(expectations, row_model(), record, CURVATURE, TARGET)
    direction = random.normal(size=6)
    direction *= 2 * record.temper * record.clip / np.linalg.norm(direction)
    hessian = np.asarray([1.0, 1.0, 1.0, 1.0, 2.0, 4.0])
    x, y = np.zeros(6), np.zeros(6)
    totals = np.zeros((2, 4))
    with jax.enable_x64(True):
        observe = jax.jit(plan)
        for step in range(1, record.num_steps + 1):
            shock = math.sqrt(2 * 0.05) * random.normal(size=6)
            x = x - 0.05 * (hessian * x) + shock
            y = y - 0.05 * (hessian * y + direction) + shock
            if step > burn_in:
                totals += np.stack([observe(x), observe(y)])
    moved = np.abs(totals[0] - totals[1]) / (record.num_steps - burn_in)
    assert moved.sum() <= plan.noise.sensitivity
    if burn_in == 60 and abs(direction[:3]).sum() > 0.39 * math.sqrt(3):
        assert moved[:3].sum() > 0.9 * math.sqrt(3)


@pytest.mark.slow
def test_released_values_are_the_averages_plus_noise_of_the_stated_size():
    plan = planned(Expectations("w", epsilon=5.0))
    wanted = np.asarray([3.0, -2.0, 0.5])
    draws = [plan.release(wanted / plan.units, SECRET)["w"].value for _ in range(400)]
    residuals = np.concatenate(draws - wanted)
    law = stats.laplace(scale=plan.noise.scale * plan.units[0])
    assert stats.kstest(residuals, law.cdf).pvalue > 1e-6


@pytest.mark.long
def test_values_that_are_not_numbers_count_as_the_lower_end_and_never_raise():
    plan = planned(
        Expectations({"r": lambda s: s["s"] / 0.0 * 0.0}, "w", bounds={"r": (2.0, 8.0)}, epsilon=1e6)
    )
    # In the precision of the kernels that call it.
    with jax.enable_x64(True):
        observed = np.asarray(plan(jnp.full(6, jnp.nan)))
    np.testing.assert_allclose(observed * plan.units + plan.centres, [2.0, 0.0, 0.0, 0.0])
    released = plan.release(np.full(4, np.nan), SECRET)
    assert released["r"].value == pytest.approx(2.0, abs=1e-2)
    assert np.isfinite(plan.release(np.full(4, np.inf), SECRET)["w"].value).all()


@pytest.mark.parametrize(
    ("what", "options", "message"),
    [
        ((), {}, "at least one"),
        (("w", "w"), {}, "once"),
        ((3,), {}, "name or a function"),
        (("w",), {"epsilon": 0.0}, "epsilon"),
        (("w",), {"epsilon": math.nan}, "epsilon"),
        (("w",), {"bounds": (1.0, 1.0)}, "a < b"),
        (("w",), {"bounds": (0.0, math.inf)}, "finite"),
        (("w",), {"bounds": 3.0}, "pair"),
        (("w",), {"bounds": {"v": (0.0, 1.0)}}, r"\['v'\]"),
        (("w",), {"burn_in": -1}, "burn_in"),
    ],
)
def test_declarations_that_make_no_sense_are_refused_at_once(what, options, message):
    with pytest.raises(DeclarationError, match=message):
        Expectations(*what, **options)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nowhere", "sites are"),
        ("s", "bounds="),
        ("ratio", "bounds="),
        ("doubled", "bounds="),
        (lambda s: s["s"], "bounds="),
        (lambda s: s["w"] * 1j, "not numbers"),
    ],
)
def test_functions_that_nothing_bounds_are_refused_with_the_remedy(what, message):
    with pytest.raises(DeclarationError, match=message):
        planned(Expectations(what))


def test_burn_in_must_leave_a_step():
    assert Expectations("w").average(10).first == 3
    with pytest.raises(DeclarationError, match="leaves none"):
        Expectations("w", burn_in=10).average(10)


@pytest.mark.slow
def test_what_was_not_declared_is_not_for_sale_afterwards():
    released = planned(Expectations("w")).release(np.zeros(3), SECRET)
    with pytest.raises(ReleaseError, match="another run"):
        released["p"]


@pytest.mark.slow
def test_what_is_released_carries_its_statement_and_its_seed_everywhere():
    plan = planned(Expectations("w"))
    released = plan.release(np.zeros(3), SECRET)
    assert released.statement == plan.statement and released.provenance == SECRET
    assert "pure" in repr(released)
    assert "not private" not in repr(released)
    assert "not private" in repr(plan.release(np.zeros(3), {"source": "caller", "generator": "chacha20"}))
    unknown = planned(Expectations("p"), curvature=Curvature()).release(np.zeros(1), SECRET)
    assert unknown["p"].to_dict()["noise_sd"]


@pytest.mark.parametrize("bounds", [None, (-3.0, 3.0), (1e9, 1e9 + 4.0)])
def test_floats_move_no_value_further_than_it_is_charged_for(bounds):
    expectations = Expectations("w", bounds=None if bounds is None else {"w": bounds})
    plan = planned(expectations)
    distance = average_sensitivity(schedule(expectations), CURVATURE)
    theta = np.random.default_rng(0).uniform(-3, 3, (20_000, 6)) + (0.0 if bounds is None else bounds[0])
    with jax.enable_x64(True):
        observe = jax.jit(jax.vmap(plan))
        moved = np.abs(observe(theta) - observe(theta + distance * np.eye(6)[W.start]))
    assert moved.max() <= 1 + ROUNDING_SHARE
