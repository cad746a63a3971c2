"""Every bound is at least its exact value, from the smallest double to 1e300 (mpmath, 60 digits)."""

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from mpmath import mpf

from benchmarks.papers.anisotropic import path_square
from private_mcmc import accounting as acc
from private_mcmc.accounting import conjugate as certificates
from private_mcmc.accounting import gdp, steps
from private_mcmc.accounting.bounds import time_that_counts
from private_mcmc.accounting.curves import Gaussian, Points, Pure, combine
from private_mcmc.accounting.mechanisms import second_moments_sensitivity
from private_mcmc.accounting.rounding import (
    TINY,
    norm_up,
    product_down,
    product_up,
    root_down,
    root_up,
    sum_up,
)
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.schedule import Average, Schedule
from tests import schedules


def magnitudes(low: float, high: float) -> st.SearchStrategy[float]:
    """Log-uniform between powers of ten, subnormal numbers and round ones among them."""
    return st.one_of(
        st.floats(low, high).map(lambda power: float(mpf(10) ** power)),
        st.sampled_from([TINY, 3 * TINY, 2.0**-1022, 1e-300, 1e-160, 1e-8, 0.1, 1.0, 1e8, 1e150]).filter(
            lambda value: low <= math.log10(value) <= high
        ),
    )


WIDE = magnitudes(-323, 300)
STEPS = st.integers(1, 10**6)


def above(ours: float, exact: mpf) -> bool:
    """``ours ≥ exact`` beyond what 60 digits can say otherwise."""
    return math.isinf(ours) or mpf(ours) >= exact * (1 - mpf(10) ** -45)


@pytest.mark.slow
@given(st.lists(WIDE, min_size=1, max_size=5), st.lists(WIDE, max_size=3))
def test_products_sums_and_norms_are_the_next_double_on_their_side(factors, over):
    exact = Fraction(1)
    for factor in factors:
        exact *= Fraction(factor)
    for divisor in over:
        exact /= Fraction(divisor)
    high, low = product_up(*factors, over=tuple(over)), product_down(*factors, over=tuple(over))
    assert high > 0
    assert math.isinf(high) or high >= exact
    assert low <= exact
    assert high == low or math.isinf(high) or high == math.nextafter(low, math.inf)
    assert math.isinf(sum_up(factors)) or sum_up(factors) >= sum(map(Fraction, factors))
    square = sum(Fraction(factor) ** 2 for factor in factors)
    assert math.isinf(norm_up(factors)) or Fraction(norm_up(factors)) ** 2 >= square
    assert norm_up(factors[:1]) == factors[0]


@given(WIDE)
def test_roots_are_the_next_double_on_their_side(value):
    assert Fraction(root_up(value)) ** 2 >= value >= Fraction(root_down(value)) ** 2
    assert root_up(value) <= math.nextafter(root_down(value), math.inf)
    assert root_up(0.0) == root_down(0.0) == 0.0


def affine_exact(ratio: mpf, gap: mpf, steps: int) -> mpf:
    if gap == 0:
        return steps * ratio**2
    power = (1 - gap) ** steps
    return ratio**2 * (2 - gap) / gap * (1 - power) / (1 + power)


@given(WIDE, st.one_of(magnitudes(-323, 0), st.just(0.0)), st.integers(1, 10**4))
@example(1e-170, 0.5, 10)
@example(1e-5, 5e-324, 10**5)
def test_hidden_states_of_equal_steps(ratio, gap, steps):
    assume(gap <= 1)
    with mpmath.workdps(700 if gap < 1e-30 else 60):
        # Of a step of 1 whose potential has all its eigenvalues at the gap, or a little below.
        known = acc.Curvature(gap, gap)
        exact = affine_exact(mpf(ratio), mpf(known.gap(1.0)), steps)
        found = product_up(time_that_counts((1.0,) * steps, known), ratio, ratio)
        assert above(found, exact)
        assert math.isinf(found) or found <= exact * (1 + mpf(10) ** -8) + 4 * mpf(TINY)


@given(st.lists(magnitudes(-300, 0), min_size=1, max_size=8), magnitudes(-12, 0))
@example([1e-200, 1.0, 1e-320], 0.5)
def test_hidden_states_of_steps_that_change(sizes, mu):
    known = acc.Curvature(mu, mu)
    assume(all(0 <= known.gap(size) <= 1 for size in sizes))
    with mpmath.workdps(700):
        pushed, absorbed = mpf(0), mpf(0)
        for size in sizes:
            rho = 1 - mpf(known.gap(size))
            pushed, absorbed = rho * pushed + mpf(size), rho**2 * absorbed + mpf(size)
        assert above(time_that_counts(tuple(sizes), known), pushed**2 / absorbed)


schedule = partial(schedules.schedule, num_rows=3, dim=1, step_size=0.1, num_steps=7)


@pytest.mark.slow
@given(WIDE, WIDE, WIDE, st.integers(1, 50), st.sampled_from(["replace_one", "add_remove", "zero_out"]))
@example(1e-200, 1e-150, 1e300, 5, "replace_one")
def test_paths_and_last_states_of_runs(step, clip, temper, steps, adjacency):
    both = 2 if adjacency == "replace_one" else 1
    square = steps * mpf(step) * (both * mpf(clip) * mpf(temper)) ** 2 / 2
    assume(mpf(step) * mpf(clip) * mpf(temper) < 1e300 and mpf(clip) * mpf(temper) < 1e300)
    run = partial(schedule, step_size=step, clip=clip, temper=temper, num_steps=steps, adjacency=adjacency)
    # At last a quadratic of no curvature: exact.
    for release, *known in (("path",), ("last",), ("last", acc.Curvature(smoothness=0.0))):
        assert above(acc.langevin_statement(run(release=release), *known).gdp, mpmath.sqrt(square))


@pytest.mark.slow
@given(magnitudes(-300, 0), magnitudes(-300, 150), st.integers(1, 40), st.integers(1, 40))
def test_sensitivities_of_averages(step, clip, steps, first):
    assume(first <= steps)
    item = schedule(step_size=step, clip=clip, num_steps=steps, release=Average(first))
    gap = product_down(step, 1.0)
    found = acc.average_sensitivity(item, acc.Curvature(1.0, 1.0))
    r, distance, total = 1 - mpf(gap), mpf(0), mpf(0)
    for index in range(1, steps + 1):
        distance = r * distance + 2 * mpf(step) * mpf(clip)
        total += distance if index >= first else 0
    assert above(found, total / (steps - first + 1))


@given(WIDE, st.floats(0, 1.0))
def test_deltas_of_pure_curves(level, share):
    assume(level < 1e6)
    at = share * level
    with mpmath.workdps(400):
        gap = mpmath.exp(mpf(at) - mpf(level))
        exact, tiny = max(mpf(0), (1 - gap) / (1 + mpmath.exp(-mpf(level)))), mpf(1e-300)
        assert above(Pure(level).delta(at), exact)
        assert above(Points(((level, 1e-300),)).delta(at), tiny + (1 - tiny) * exact)


@pytest.mark.slow
@given(magnitudes(-300, 2.5), st.floats(0, 45.0))
@example(1e-9, 1e-3)
def test_gaussian_deltas(m, far):
    # ε a number of standard deviations of the privacy loss away from its mean
    epsilon = max(0.0, m * far - m * m / 2)
    with mpmath.workdps(60 if m > 1e-20 else 700):
        low, high = mpf(epsilon) / mpf(m) - mpf(m) / 2, mpf(epsilon) / mpf(m) + mpf(m) / 2
        exact = mpmath.ncdf(-low) - mpmath.exp(mpf(epsilon)) * mpmath.ncdf(-high)
        assert above(gdp.delta(m, epsilon), exact)


@given(WIDE, WIDE, WIDE, st.integers(1, 1000), st.integers(1, 50))
@example(1e-200, 1e200, 1e-300, 3, 2)
def test_statements_of_noise_posteriors_and_groups(first, second, third, dim, rows):
    def gaussian(statement):
        return statement.curves[0].m

    noised = acc.gaussian(adjacency="zero_out", sensitivity=first, scale=second)
    assert above(gaussian(noised), mpf(first) / mpf(second))
    assert above(second_moments_sensitivity(first, 2, "replace_one"), mpmath.sqrt(2) * mpf(first) ** 2)
    concave = acc.posterior_strongly_log_concave(first, second, "replace_one")
    assert above(gaussian(concave), mpf(first) / mpmath.sqrt(mpf(second)))
    bounded = acc.posterior_bounded_gradient(first, second, "replace_one")
    assert above(gaussian(bounded), 2 * mpf(first) / mpmath.sqrt(mpf(second)))
    one, two = gaussian(concave), gaussian(bounded)
    if max(one, two) < math.inf:
        both = acc.compose(concave, bounded)
        assert above(gaussian(both), mpmath.sqrt(mpf(one) ** 2 + mpf(two) ** 2))
    square = (mpf(first) + mpf(second)) / 2 * mpf(second) ** 2 / mpf(third)
    assert above(path_square([first, second], [third], [second]), square)


@given(WIDE, WIDE)
def test_scales_a_rounding_too_small_are_charged_for(epsilon, sensitivity):
    scale = sensitivity / epsilon
    assume(0 < scale < math.inf and scale > 1e-290)
    found = acc.laplace(epsilon, adjacency="zero_out", sensitivity=sensitivity, scale=scale)
    assert above(found.curves[0].level, mpf(sensitivity) / mpf(scale))


@given(st.lists(WIDE, min_size=1, max_size=4), WIDE)
@example([1e-170], 1e-180)
@example([0.6, 0.8], 1.0)
def test_an_adaptive_budget_is_never_exceeded(levels, budget):
    stages = tuple(
        acc.gaussian(adjacency="zero_out", sensitivity=level, scale=1.0, what=str(k))
        for k, level in enumerate(levels)
    )
    try:
        acc.adaptive(budget, "zero_out", stages)
    except NotPrivate:
        return
    assert sum(Fraction(stage.gdp) ** 2 for stage in stages) <= Fraction(budget) ** 2


@given(st.lists(WIDE, min_size=2, max_size=4))
def test_composition_of_like_and_unlike_curves(sizes):
    assume(max(sizes) < 1e100)
    together = combine(tuple(map(Gaussian, sizes)))
    assert above(together.m, mpmath.sqrt(sum(mpf(size) ** 2 for size in sizes)))
    mixed = combine((Pure(sizes[0]), Gaussian(sizes[1])))
    assert above(mixed.gdp, mpmath.sqrt(mpf(gdp.of_pure(sizes[0])) ** 2 + mpf(sizes[1]) ** 2))
    pure = combine((Pure(sizes[0]), Pure(sizes[1])))
    assert above(pure.epsilon(0.0), mpf(sizes[0]) + mpf(sizes[1]))


@pytest.mark.slow
@given(
    st.lists(st.floats(0.0, 6.0), min_size=2, max_size=4),
    st.one_of(st.floats(0.0, 1.2), st.sampled_from([1.0, 1 - 2.0**-53])),
)
@example([0.1, 0.2, 0.3], 1.0)
def test_composed_pure_levels_at_every_epsilon(levels, share):
    """Randomised responses, composed by hand."""
    at = share * math.fsum(levels)
    with mpmath.workdps(400):
        losses = [(mpf(0), mpf(1))]
        for level in map(mpf, levels):
            p = 1 / (1 + mpmath.exp(-level))
            losses = [(a + s * level, b * w) for a, b in losses for s, w in ((1, p), (-1, 1 - p))]
        exact = sum(mass * max(mpf(0), 1 - mpmath.exp(mpf(at) - loss)) for loss, mass in losses)
        assert above(combine(tuple(map(Pure, levels))).delta(at), exact)


def test_the_smallest_sensitivity_of_all_is_not_free():
    """A row that moves the gradient by less than any square of it can show."""
    item = schedule(step_size=1.0, clip=1e-170, temper=1.0, release="path")
    assert acc.langevin_statement(item).gdp >= 1e-170
    assert acc.langevin_statement(item).epsilon(1e-200) > 0 or acc.langevin_statement(item).delta(0.0) > 0
    assert acc.verify(acc.langevin_statement(item).to_dict())
    with pytest.raises(NotPrivate):
        stage = acc.gaussian(adjacency="zero_out", sensitivity=1e-170, scale=1.0)
        acc.adaptive(1e-180, "zero_out", (stage,))


SIZES = (5e-324, 1e-308, 1e-200, 1e-30, 0.3, 1.0, 7.0, 1e30, 1e200, 1e308)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_numbers_however_extreme_bring_out_an_error_that_is_not_our_own(data):
    def one(*values):
        return data.draw(st.sampled_from(values))

    low, high = sorted((one(0.0, *SIZES), one(*SIZES)))
    proved = acc.Curvature(low, high, one(*SIZES), one(*SIZES))
    try:
        item = schedule(
            adjacency=one("replace_one", "add_remove", "zero_out"),
            num_rows=one(4, 10**6, 10**14),
            num_steps=3,
            step_size=one(one(*SIZES), tuple(one(*SIZES) for _ in range(3))),
            clip=one(*SIZES),
            temper=one(1.0, 1e-300),
            rate=one(None, None, 1e-300, 0.3, 1.0),
            release=one("path", "last", Average(1)),
            preconditioner=one(None, (one(*SIZES),)),
            noise=one(None, (one(*SIZES),)),
        )
        if isinstance(item.release, Average):
            assert acc.average_sensitivity(item, proved) >= 0
        else:
            assert acc.langevin_statement(item, proved).curves
    except DeclarationError as error:
        assert len(str(error)) > 20


def metrics() -> Iterator[Schedule]:
    """Runs whose metric is a full matrix, up to one that float64 hardly tells from a singular one."""
    random = np.random.default_rng(0)
    for condition in (1.0, 1e3, 1e8, 1e11):
        for dim in (2, 3, 6):
            turned, _ = np.linalg.qr(random.normal(size=(dim, dim)))
            matrix = (turned * np.geomspace(1, 1 / condition, dim)) @ turned.T
            yield schedule(dim=dim, preconditioner=tuple(map(tuple, ((matrix + matrix.T) / 2).tolist())))


def covers_the_sums(run: Schedule) -> bool:
    """Whether the allowance for two sums is at least ``2wnC √cond(M) nu/(1 − nu)``."""
    with mpmath.workdps(60):
        values = mpmath.eigsy(mpmath.matrix(run.preconditioner), eigvals_only=True)
        load = run.num_rows * mpf(2) ** -53
        whole = 2 * mpf(run.temper) * run.num_rows * mpf(run.clip) * load / (1 - load)
        return above(steps.rounding_allowance(run), whole * mpmath.sqrt(max(values) / min(values)))


def test_sums_in_a_metric_have_room_for_its_exact_condition_number():
    assert all(map(covers_the_sums, metrics()))


def test_a_condition_number_to_nearest_would_leave_sums_too_little_room(monkeypatch):
    """A planted fault: eigenvalues as a solver gives them."""
    nearest = lambda run: float(np.linalg.cond(np.array(run.preconditioner)))  # noqa: E731
    monkeypatch.setattr(steps, "condition_number", nearest)
    assert not all(map(covers_the_sums, metrics()))


ROWS, TEMPERS = st.integers(1, 4), st.one_of(st.just(1.0), magnitudes(-4, 0))
EPSILONS = st.one_of(st.sampled_from([0.0, 0.1, 1.0, 3.0]), magnitudes(-3, 1))
few = settings(max_examples=60)


def beta_cdf(a: mpf, b: mpf, x: mpf) -> mpf:
    return mpmath.betainc(a, b, 0, x, regularized=True)


def moved(a: mpf, b: mpf, move: mpf, epsilon: mpf) -> mpf:
    """``δ(ε)`` of ``Beta(a + move, b)`` from ``Beta(a, b + move)``; its event is ``logit x > t``."""
    t = (epsilon + mpmath.log(mpmath.beta(a + move, b)) - mpmath.log(mpmath.beta(a, b + move))) / move
    x = 1 / (1 + mpmath.exp(t))
    return beta_cdf(b, a + move, x) - mpmath.exp(epsilon) * beta_cdf(b + move, a, x)


def counted(shape: mpf, move: mpf, epsilon: mpf) -> mpf:
    """``δ(ε)`` of ``Gamma(shape + move)`` and ``Gamma(shape)``, the larger of both orders."""
    gap = mpmath.loggamma(shape + move) - mpmath.loggamma(shape)
    top, low = (mpmath.exp((sign * epsilon + gap) / move) for sign in (1, -1))

    def mass(shape: mpf, first: mpf, last: mpf) -> mpf:
        return mpmath.gammainc(shape, first, last, regularized=True)

    factor = mpmath.exp(epsilon)
    more = mass(shape + move, top, mpmath.inf) - factor * mass(shape, top, mpmath.inf)
    return max(more, mass(shape, 0, low) - factor * mass(shape + move, 0, low))


@pytest.mark.slow
@few
@given(magnitudes(-3, 4), magnitudes(-3, 4), ROWS, TEMPERS, EPSILONS, st.integers(1, 30))
def test_conjugate_posteriors_of_whole_numbers(a, b, n, temper, epsilon, largest):
    facts = {"n": n, "temper": temper, "epsilons": (epsilon,)}
    one, two, w, e = mpf(a), mpf(b), mpf(temper), mpf(epsilon)
    won = [(one + w * k, two + w * (n - 1 - k)) for k in range(n)]
    exact = max(max(moved(*shapes, w, e), moved(*shapes[::-1], w, e)) for shapes in won)
    bound = certificates.posterior_conjugate("beta_binomial", a=a, b=b, trials=1, **facts)
    assert above(bound.delta(epsilon), exact)
    bound = certificates.posterior_conjugate("gamma_poisson", shape=a, largest=largest, **facts)
    assert above(bound.delta(epsilon), counted(one, w * largest, e))
