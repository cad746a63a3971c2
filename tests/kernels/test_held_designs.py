"""What hidden states cost holds of what runs, however long a design is and whatever was proposed of it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.domains import Ball, Binary, Box, Categories, Person, Rows
from private_mcmc.kernels.gradient import clipped_gradient, whitening
from private_mcmc.kernels.step import langevin_program
from private_mcmc.model import read
from private_mcmc.potential.families import TABLE, Interval
from private_mcmc.potential.potential import RowTerm, curvature
from private_mcmc.potential.predictor import OUTCOME, Predictor, Term
from private_mcmc.potential.prior import TABLE as PRIORS
from private_mcmc.potential.prior import OwnPrior, PriorConstants
from private_mcmc.release.price import price
from tests import schedules
from tests.examples_of_models import observed

N, X = 12, Ball(1.0, 2)


def weights(size):
    return numpyro.sample("w", dist.Normal(0, 3).expand(size).to_event(len(size)))


def squares(X, y=None):
    """A design of squares and a product, whose radius is a proposal."""
    w = weights((5,))
    design = jnp.column_stack([X, X**2, X[:, :1] * X[:, 1:]])
    observed(X, dist.Bernoulli(logits=design @ w), y)


def classes(X, y=None):
    """Three predictors of such a design."""
    w = weights((4, 3))
    observed(X, dist.Categorical(logits=jnp.column_stack([X, X**2]) @ w), y)


CASES = {
    "one predictor": (squares, Rows(X=X, y=Binary())),
    "several predictors": (classes, Rows(X=X, y=Categories(3))),
    "a person's rows": (squares, Rows(X=X, y=Binary(), who=Person(2))),
}


def believed(reading, radius):
    """The reading with another proposal of its radius."""
    term = reading.term if reading.each is None else reading.each.term
    made = RowTerm(dataclasses.replace(term.predictors, radius=radius), term.rows)
    made = made if reading.unit is None else made.of_persons(Rows(**term.rows.columns, who=Person(2)))
    return dataclasses.replace(reading, term=made)


def schedule(reading, clip):
    given = {"num_rows": N, "num_steps": 5, "release": "last", "unit": reading.unit}
    return schedules.schedule(dim=reading.dim, clip=clip, **given)


def worst(priced, runs, states=None):
    """By how much two states' steps of ``runs`` differ, per what ``priced`` is said to allow; at most 1."""
    clip = max(priced.constants.gradient_bound, runs.constants.gradient_bound)
    known = curvature(priced, schedule(priced, clip))
    assert known.strong_convexity > 0 and known.smoothness < np.inf
    with jax.enable_x64(True):
        gradient = clipped_gradient(runs, whitening(None, runs.dim), clip, states)
        # The longest row N times, near where its loss bends most.
        every = runs.rows.synthetic(1, 200)
        bend, zero = jax.hessian(runs.row_loss), jnp.zeros(runs.dim)
        lengths = jax.vmap(lambda row: jnp.linalg.norm(bend(zero, row)))(every)
        data = {name: jnp.repeat(column[lengths.argmax()][None], N, 0) for name, column in every.items()}
        rows = gradient.prepare(data, jnp.ones(N, bool))
        at = jax.jit(jax.vmap(lambda u: gradient.total(u, rows) + jax.grad(runs.neg_log_prior)(u)))
        u = 0.1 * np.random.default_rng(0).normal(size=(200, runs.dim))
        fields, moved = np.asarray(at(jnp.asarray(u))), u[1:] - u[:-1]
    change = fields[1:] - fields[:-1]
    steep = np.linalg.norm(change, axis=1) / np.linalg.norm(moved, axis=1) / known.smoothness
    flat = known.strong_convexity * np.sum(moved**2, axis=1) / np.sum(change * moved, axis=1)
    return max(steep.max(), flat.max(), flat.min() * -np.inf if flat.min() < 0 else 0.0)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", CASES)
def test_no_step_moves_states_further_than_the_radius_that_is_held_allows(name):
    model, rows = CASES[name]
    reading = read(model, rows, n=N)
    assert 0 < (reading.each or reading).predictors.radius < np.inf and not reading.constants.proved
    for share in (1.0, 0.5, 0.05):
        wrong = believed(reading, share * (reading.each or reading).predictors.radius)
        for states in (None, 1):
            assert worst(wrong, wrong, states) <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one predictor", "several predictors"])
def test_a_kernel_that_does_not_hold_designs_is_found_out(name):
    """The fault planted: what is priced is a shorter design than the one that runs."""
    model, rows = CASES[name]
    reading = read(model, rows, n=N)
    wrong = believed(reading, 0.05 * reading.predictors.radius)
    assert worst(wrong, reading) > 1.5


@pytest.mark.slow
def test_a_line_with_too_small_a_bound_is_found_out(monkeypatch):
    line = TABLE["BernoulliLogits", "logits"]["identity"]
    short = {"identity": dataclasses.replace(line, curvature=0.25 / 20, score=1.0)}
    monkeypatch.setitem(TABLE, ("BernoulliLogits", "logits"), short)
    reading = read(squares, CASES["one predictor"][1], n=N)
    assert worst(reading, reading) > 1.0


@pytest.mark.slow
def test_an_outcome_beyond_what_was_proposed_of_it_is_held_at_the_end():
    def logs(x, y=None):
        w = weights((1,))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.StudentT(4.0, w * x, 1.0), obs=jnp.log(y))

    reading = read(logs, Rows(x=Box(-1.0, 1.0), y=Box(0.1, 9.0)), n=N)
    assert reading.constants.convex is False and not reading.constants.proved
    with jax.enable_x64(True):
        slope = jax.grad(reading.predictor.loss)
        inside, beyond, far = (float(slope(0.3, {"x": 1.0, "y": y})) for y in (8.9, 9.0, 1e9))
    assert inside != beyond == pytest.approx(far)


def of(low, high=None):
    return Interval(np.asarray(float(low)), np.asarray(float(low if high is None else high)))


def term(name, parameter, link, given, ends, shape=(), observed=(), **changes):
    """A site with a line of the table, and what is read of every row."""
    line = TABLE[name, parameter][link]
    held = {OUTCOME: of(0, 1)} | {key: of(*ends[key]) for key in ends}
    known = {OUTCOME: 0.0} | given
    return Term(
        line, shape, observed, lambda row: {k: jnp.asarray(v) for k, v in known.items()}, held, **changes
    )


BITS = ("BernoulliLogits", "logits", "identity")
LINE = TABLE[BITS[:2]][BITS[2]]
LIES = {
    "ends turned round": lambda: [term("Normal", "loc", "identity", {"scale": 7.0}, {"scale": (5, 1)})],
    "more weights than outcomes": lambda: [term(*BITS, {"weight": np.ones(5)}, {"weight": (0, 1)})],
    "a parameter that is not read": lambda: [term("BinomialLogits", *BITS[1:], {}, {"total_count": (0.1,)})],
    "a steeper link": lambda: [
        term(
            "GammaPoisson", "rate", "exp", {"concentration": 1.0, "multiplier": 1.0},
            {"concentration": (1,), "multiplier": (1,)}, falling=10.0,
        )
    ],
    "a line of somebody else": lambda: [
        dataclasses.replace(term(*BITS, {}, {}), line=dataclasses.replace(LINE, curvature=0.1)),
    ],
    "predictors in two terms": lambda: [term(*BITS, {"outcome": np.zeros(2)}, {}, (2,), (2,))] * 2,
    "another loss beside the terms": lambda: [term(*BITS, {}, {})],
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_of_what_is_wrongly_proposed_bounds_hold_or_there_are_none(name):
    """Each of these ran a loss that bends, or is steep, by more than was proved of it."""
    terms = LIES[name]()
    size = sum(max(1, *one.shape, 0) for one in terms) - (len(terms) - 1)
    places = [slice(first, first + max(1, *one.shape, 0)) for first, one in enumerate(terms)]
    other = (lambda eta, row: jnp.exp(eta[0])) if "another loss" in name else None
    likelihood = Predictor(
        lambda theta, row: theta, size, size, tuple(zip(terms, places, strict=True)), unknown=other
    )
    with jax.enable_x64(True):
        etas = jnp.linspace(-6, 6, 101)[:, None] * jnp.ones(size)
        try:
            bends = jax.vmap(jax.hessian(lambda eta: likelihood.loss(eta, {})))(etas)
            slopes = jax.vmap(jax.grad(lambda eta: likelihood.loss(eta, {})))(etas)
        except (ValueError, KeyError):  # It does not run.
            return
        assert np.linalg.norm(bends, 2, axis=(1, 2)).max() <= likelihood.family.curvature_bound
        assert np.linalg.norm(slopes, axis=1).max() <= likelihood.family.score_bound


@pytest.mark.parametrize("radius", [-1.0, np.nan])
def test_a_radius_that_is_no_length_is_refused(radius):
    with pytest.raises(pmc.DeclarationError, match="length"):
        Predictor(lambda theta, row: theta, 1, 1, radius=radius)


def plain(x, y=None):
    w = weights((1,))
    observed(x, dist.Normal(w * x, 1.0), y)


def test_designs_that_are_longer_by_rounding_are_charged_for_it():
    """Rows of all but 1e-9 more than the radius are not shortened: a step below 2/L parted two chains."""
    reading = read(plain, Rows(x=Box(-1.0, 1.0), y=Box(-1.0, 1.0)), n=N)
    wrong = believed(reading, reading.predictors.radius / (1 + 0.99e-9))
    known = curvature(wrong, schedule(wrong, 1e9))
    with jax.enable_x64(True):
        gradient = clipped_gradient(wrong, whitening(None, 1), 1e9)
        rows = gradient.prepare({"x": jnp.ones(N), "y": jnp.ones(N)}, jnp.ones(N, bool))
        bend = jax.jacobian(lambda u: gradient.total(u, rows) + jax.grad(wrong.neg_log_prior)(u))(
            jnp.zeros(1)
        )
    assert float(bend[0, 0]) <= known.smoothness < float(bend[0, 0]) * (1 + 1e-8)


def test_a_prior_whose_sites_overlap_or_have_other_lines_has_no_constants():
    reading = read(plain, Rows(x=Box(-1.0, 1.0), y=Box(-1.0, 1.0)), n=N)
    site, line = reading.sites[0], PRIORS["Normal", "real"]
    one = OwnPrior(site, line, [np.zeros(1), np.ones(1)])
    own = PriorConstants([site], [one], jnp.sum)
    assert own.in_metric(None)[0] == pytest.approx(1.0)
    flatter = dataclasses.replace(line, bounds=lambda m, s: (0.1, 0.1))
    for parts in ([one, one], [dataclasses.replace(one, line=flatter)]):
        with pytest.raises(pmc.DeclarationError, match=r"coordinate|table"):
            PriorConstants([site], parts, jnp.sum)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        *(("term", one) for one in ("constants", "share", "predictor")),
        ("predictor", "family"),
        ("prior", "lower"),
    ],
)
def test_what_is_proved_of_a_part_is_no_field_of_it(part, name):
    """Whoever made a part by hand, with other constants than those of what it runs, was believed."""
    reading = read(plain, Rows(x=Box(-1.0, 1.0), y=Box(-1.0, 1.0)), n=N)
    with pytest.raises((TypeError, ValueError), match=name):
        dataclasses.replace(getattr(reading, part), **{name: getattr(getattr(reading, part), name)})
    steep = dataclasses.replace(reading.predictors, unknown=lambda eta, row: 9 * eta[0])
    made = RowTerm(steep, reading.rows)
    assert made.constants.gradient_bound == np.inf and not made.constants.convex and made.share is None


def far(o, x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    observed(x, dist.Normal(x * w + o, 1.0), y)


def of_offsets(most):
    rows = Rows(o=Box(0.0, most), x=Box(-1.0, 1.0), y=Box(-1e16, 1e16))
    reading = read(far, rows, n=N)
    return reading, schedules.schedule(num_rows=N, dim=1, step_size=1e-3, num_steps=5, release="last")


def test_hidden_states_have_no_price_where_an_offset_hides_their_slope():
    """Rounded to an offset of 10¹⁶, the slopes of all rows jump where steps were said to contract."""
    reading, asked = of_offsets(1e16)
    with pytest.raises(pmc.DeclarationError, match="rounds off"):
        price(reading, asked, pmc.Target(9.0, 1e-6))


def test_what_an_offset_rounds_off_is_charged():
    reading, asked = of_offsets(1e6)
    _, made, _ = price(reading, asked, pmc.Target(9.0, 1e-6))
    columns = {"x": np.ones(N), "o": np.full(N, 1e16), "y": np.full(N, 1e6)}
    with jax.enable_x64(True):
        program = langevin_program(reading, made)
        kept = program.prepare(reading.rows.project(columns), jnp.ones(N, bool))
        states = np.linspace(0.5, 0.5 + 1e-9, 40)
        sums = np.asarray(
            [program.data(jnp.full((1, 1), u), jnp.asarray(0), None, None, kept)[0, 0] for u in states]
        )
    bent = N * (states[:, None] - states)
    off = np.abs(sums[:, None] - sums - bent).max()
    assert 1e-10 < off <= made.rounding * 2 * made.clip and made.rounding > 1e-9


def test_a_row_whose_length_is_not_a_number_has_no_weight_of_one():
    """Of designs whose products overflow apart, the length is their difference."""
    several = Predictor(lambda theta, row: row["A"] @ theta, 2, 2, radius=1.0)
    with jax.enable_x64(True):
        overflown = jnp.asarray([[1e160, 1e160], [1e160, -1e160]])
        assert bool(several.share({"A": overflown}) == 1.0) is False
        assert several.share({"A": jnp.eye(2) / 2}) == 1.0
