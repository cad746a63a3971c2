"""Slopes of every line of the table, as compiled, against 40 digits: what is charged is enough.

``rounding_of_slopes`` charges ``32u|ψ'|``, and ``33u`` of the most that ``ψ''`` can be times ``1 + |η| + ℓ``,
``ℓ`` logarithms of which a rate is made. Half of it must do, wherever a predictor may be.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import log_ndtr
from mpmath import mp, mpf

from private_mcmc.potential import losses
from private_mcmc.potential.families import TABLE, Interval

FAR = np.geomspace(1e-9, 3e4, 80)
GRID = np.concatenate([-FAR, [0.0], FAR, np.linspace(-45, 45, 241), np.linspace(-760, 760, 101)])


def sigma(x):
    return 1 / (1 + mp.exp(-x))


def mills(x):
    """``φ/Φ``; far out by its continued fraction."""
    found = -x
    for k in range(60, 0, -1):
        found = -x + k / found if x < -30 else found
    return found if x < -30 else mp.npdf(x) / mp.ncdf(x)


def beta(eta, y, k):
    apart = mp.digamma(k * sigma(eta)) - mp.digamma(k * sigma(-eta))
    return k * sigma(eta) * sigma(-eta) * (apart - mp.log(y / (1 - y)))


def ordered(eta, y, cuts):
    above = sigma(eta - cuts[int(y)]) if y < len(cuts) else 0
    return above - (sigma(cuts[int(y) - 1] - eta) if y > 0 else 0)


# A line's place in the table, its other parameters, outcomes, and ``ψ'`` of ``t = ±η`` or of ``η``.
CASES = {
    "binomial": (
        ("BinomialLogits logits identity", {"total_count": 7.0}, (0.0, 3.0)),
        lambda eta, y, n: n * sigma(eta) - y,
    ),
    "binomial probit": (
        ("BinomialProbs probs ndtr", {"total_count": 7.0}, (0.0, 3.0)),
        lambda eta, y, n: (n - y) * mills(-eta) - y * mills(eta),
    ),
    "poisson": (("Poisson rate exp", {}, (0.0, 1e6)), lambda t, y: mp.exp(t) - y),
    "negative binomial": (
        ("GammaPoisson rate exp", {"concentration": 0.3}, (0.0, 1e6)),
        lambda t, y, k: (k + y) * sigma(t) - k,
    ),
    "ordered": (
        ("OrderedLogistic predictor identity", {"cutpoints": (-30.0, 0.1)}, (0.0, 1.0, 2.0)),
        ordered,
    ),
    "normal": (("Normal loc identity", {"scale": 0.3}, (-1e3, 2.0)), lambda eta, y, s: (eta - y) / s**2),
    # A logarithm of an outcome may be rounded in any way.
    "log normal": (("LogNormal loc identity", {"scale": 0.3}, (1.0,)), lambda eta, y, s: eta / s**2),
    "student": (
        ("StudentT loc identity", {"df": 2.5, "scale": 0.3}, (-1e3, 2.0)),
        lambda eta, y, nu, s: (nu + 1) * (eta - y) / (nu * s**2 + (eta - y) ** 2),
    ),
    "gamma": (
        ("Gamma rate exp_neg", {"concentration": 3.3}, (0.0, 1e-300, 1e9)),
        lambda t, y, a: y * mp.exp(t) - a,
    ),
    "weibull": (
        ("Weibull scale exp", {"concentration": 1.7}, (1e-300, 1e9)),
        lambda t, y, a: a - a * mp.exp(a * (mp.log(y) - t)),
    ),
    **{
        f"beta {k:g}": (("BetaProportion concentration1 logistic", {"concentration": k}, (1e-12, 0.4)), beta)
        for k in (1e-6, 2.92, 1e9)
    },
}


def line_at(place):
    *family, link = place.split()
    return TABLE[tuple(family)][link]


def lost(name):
    """The most that a slope is off, as a part of half of what is charged."""
    (place, given, outcomes), exact = CASES[name]
    line, sign, worst = line_at(place), -1.0 if place.endswith("exp_neg") else 1.0, 0.0
    ends = {name: Interval(*[np.asarray(value)] * 2) for name, value in given.items()}
    ends["multiplier"] = ends.get("concentration")
    with jax.enable_x64(True), mp.workdps(40):
        fixed = {key: jnp.asarray(value) for key, value in given.items()}
        fixed |= {"log_multiplier": jnp.zeros(()), "sign": jnp.asarray(sign)}
        slopes = jax.jit(jax.vmap(jax.grad(lambda eta, y: line.loss(eta, y, fixed)), (0, None)))
        numbers = [list(map(mpf, one)) if isinstance(one, tuple) else mpf(one) for one in given.values()]
        for y in outcomes:
            family = line.family(Interval(*[np.asarray(y)] * 2), ends)
            a, b = family.growth
            for eta, found in zip(GRID, np.asarray(slopes(jnp.asarray(GRID), jnp.asarray(y))), strict=True):
                true = sign * exact(sign * mpf(float(eta)), mpf(y), *numbers)
                if abs(true) < 1e290:
                    slope = float(abs(true))
                    bend = min(family.curvature_bound, a + b * slope if a < np.inf else np.inf)
                    room = 16 * 2.0**-53 * (slope + bend * (1 + abs(eta) + 750 * line.scaled)) + 1e-300
                    worst = max(worst, float(abs(mpf(float(found)) - true)) / room)
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_slope_is_off_by_half_of_what_is_charged_at_most(name):
    assert lost(name) <= 1


def test_every_loss_is_held_against_exact_slopes():
    """But softmax, below, and the exponential, which is the gamma of concentration 1."""
    seen = {line_at(place).loss for (place, *_), _ in CASES.values()}
    others = {line.name for by in TABLE.values() for line in by.values() if line.loss not in seen}
    assert others == {"Categorical"}


def test_softmax_is_off_by_few_units():
    etas = np.random.default_rng(0).normal(size=(200, 4)) * np.geomspace(1e-3, 1e3, 200)[:, None]
    with jax.enable_x64(True), mp.workdps(40):
        found = jax.vmap(jax.grad(lambda eta: losses.categorical(eta, jnp.asarray(1), {})))(etas)
        for eta, slope in zip(etas.tolist(), np.asarray(found).tolist(), strict=True):
            parts = [mp.exp(mpf(one) - mpf(max(eta))) for one in eta]
            true = [part / mp.fsum(parts) - (k == 1) for k, part in enumerate(parts)]
            assert max(abs(s - t) for s, t in zip(slope, true, strict=True)) <= 16 * 2.0**-53


def test_a_slope_by_exponentials_of_squares_loses_more(monkeypatch):
    """The fault: ``φ/Φ`` as the exponential of ``−x²/2 − log Φ``, which is off by ``x²`` units."""
    plain = 0.5 * np.log(2 * np.pi)
    monkeypatch.setattr(losses, "_inverse_mills", lambda x: jnp.exp(-0.5 * x * x - log_ndtr(x) - plain))
    assert lost("binomial probit") > 10
