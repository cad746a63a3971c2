"""Comparisons of two studies: the right one is chosen, intervals cover, and the bound is enforced."""

import numpy as np
import pytest
from scipy.special import expit, ndtr
from scipy.stats import expon, weibull_min

import private_mcmc as pmc
from private_mcmc.analysis.analysis import Studied
from private_mcmc.analysis.comparison import Comparison
from private_mcmc.release import Contribution
from tests.analysis.test_check import PRICE, SCHEMA, N
from tests.data.fields import flag, number, schema


def studied(formula, of=SCHEMA, family="bernoulli", **draws):
    return Studied("f", of, formula, family, (), {k: [v] * 3 for k, v in draws.items()}, 0.2)


@pytest.fixture(scope="module")
def asked():
    """B has the effect of sex that A lacks; x is divided by 4 in both."""
    a = studied("y ~ x", Intercept=-0.6, x=3.0)
    return Comparison.planned(a, studied("y ~ x + sex", Intercept=-0.9, x=3.0, sex=[0.6]))


def differences(asked, random, n=N):
    """Clipped log densities of B less A of people for whom B is true, from the closed form."""
    x, sex = np.clip(random.normal(size=n), -4, 4), random.integers(0, 2, n)
    b, a = expit(-0.9 + 0.75 * x + 0.6 * sex), expit(-0.6 + 0.75 * x)
    y = random.random(n) < b
    logs = np.where(y, np.log(b / a), np.log((1 - b) / (1 - a)))
    return np.clip(logs / asked.bound, -1, 1), {"x": x, "sex": sex.astype(float), "y": y.astype(float)}


def answers(asked, t, random, adjacency="replace_one", prob=0.9):
    mechanism = asked.mechanism(PRICE, len(t), adjacency)
    sums = mechanism.sums([Contribution(np.zeros(len(t), int), t)], np.ones(len(t), bool))
    noised = sums + mechanism.noise.sd * random.normal(size=3)
    return asked.lines(asked.released(mechanism, noised), prob)


def test_a_row_adds_its_own_clipped_difference_of_log_densities(asked):
    t, rows = differences(asked, np.random.default_rng(0), 300)
    ((cells, found),) = asked.first.of_people(lambda row: tuple(asked.of_row(row)), rows)
    np.testing.assert_allclose(found, t, atol=1e-12)
    assert set(cells) == {0} and np.abs(found).max() <= 1


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_intervals_cover_the_populations_mean_difference(asked, adjacency):
    """Of 600 intervals of level 0.9 a share outside 0.87 to 0.93 comes up with probability 1.5 %."""
    random = np.random.default_rng(1)
    population = asked.bound * differences(asked, random, 2_000_000)[0].mean()
    hits = []
    for _ in range(600):
        whole = answers(asked, differences(asked, random)[0], random, adjacency)[0]
        hits.append(whole["low"] <= population <= whole["high"])
    assert 0.87 <= np.mean(hits) <= 0.93


def test_the_right_one_of_two_is_ahead_in_six_of_seven_studies(asked):
    """At ε = 1, twenty thousand people and a twentieth of the squared budget."""
    random = np.random.default_rng(2)
    right = [answers(asked, differences(asked, random)[0], random)[0]["value"] > 0 for _ in range(200)]
    assert np.mean(right) >= 0.85


def test_noise_sampling_and_optimism_are_told_apart(asked):
    random = np.random.default_rng(3)
    t, _ = differences(asked, random)
    whole, noise, sampling = answers(asked, t, random)
    widths = [one["high"] - one["low"] for one in (whole, noise, sampling)]
    assert widths[0] == pytest.approx(np.hypot(*widths[1:]))
    assert widths[2] == pytest.approx(2 * 1.645 * asked.bound * t.std() / N**0.5, rel=0.05)
    m = (2 * 0.2**2) ** 0.5  # of both fits
    assert asked.optimism == pytest.approx(2 * asked.bound * (2 * ndtr(m / 2) - 1))


def test_studies_that_say_different_things_are_not_compared():
    visits = studied("visits ~ x", family="poisson", Intercept=0.0, x=0.0)
    one = studied("y ~ x", Intercept=0.0, x=0.0)
    with pytest.raises(pmc.DeclarationError, match="different outcomes"):
        Comparison.planned(one, visits)
    wider = schema(number("x", -5, 4), flag("y"))
    with pytest.raises(pmc.DeclarationError, match="one schema"):
        Comparison.planned(one, studied("y ~ x", wider, Intercept=0.0, x=0.0))


def test_times_that_were_cut_off_add_what_hazards_say_of_them():
    """Weibull with B less an exponential with A, as their densities and survival functions are written."""
    a = studied("surv(years, y) ~ x", family="exponential", Intercept=-2.0, x=0.8)
    b = studied("surv(years, y) ~ x", family="weibull", Intercept=0.5, x=0.8, alpha=1.5)
    asked, random = Comparison.planned(a, b), np.random.default_rng(0)
    x, years = random.uniform(-4, 4, 200), random.uniform(0.001, 12, 200)
    y = random.integers(0, 2, 200).astype(float)
    ((_, found),) = asked.first.of_people(lambda row: asked.of_row(row), {"x": x, "years": years, "y": y})
    one = expon(scale=np.exp(2 - 0.2 * x))
    other = weibull_min(1.5, scale=12 * np.exp(-(0.5 + 0.2 * x) / 1.5))
    logs = [np.where(y > 0, law.logpdf(years), law.logsf(years)) for law in (one, other)]
    np.testing.assert_allclose(found, np.clip((logs[1] - logs[0]) / asked.bound, -1, 1), atol=1e-9)
    with pytest.raises(pmc.DeclarationError, match="different outcomes"):
        Comparison.planned(a, studied("years ~ x", family="exponential", Intercept=0.0, x=0.0))


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_few_people_are_not_told_apart_and_have_an_answer_all_the_same(asked, adjacency):
    """Which was paid for: the page of a dossier failed, and with it the command, after the charge."""
    for seed in range(50):
        random = np.random.default_rng(seed)
        whole, noise, _ = answers(asked, np.ones(10), random, adjacency)
        assert whole["low"] <= whole["value"] <= whole["high"] and whole["low"] < 0 < whole["high"]
        assert noise["high"] - noise["low"] >= asked.bound
