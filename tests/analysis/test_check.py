"""Checks of a study: false alarms at their level, power as told before, and what a row adds."""

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr, ndtri

import private_mcmc as pmc
from private_mcmc.accounting import gdp
from private_mcmc.analysis.analysis import Studied
from private_mcmc.analysis.check import Check
from private_mcmc.release import Contribution
from tests.data.fields import flag, levels, number, schema

SCHEMA = schema(
    *(number("x", -4, 4), number("bmi", 10, 60), number("years", 0.001, 12, unit="years")),
    *(number("visits", 0, 60, "integer"), flag("y"), flag("died")),
    *(levels("sex", "f", "m"), levels("region", "n", "s", "w", "e"), levels("grade", "low", "mid", "high")),
)
N = 20_000
# A twentieth of the squared budget of ε = 1.
PRICE = gdp.budget(1.0, 1e-6) * 0.05**0.5


def studied(formula, kind, draws):
    return Studied("f", SCHEMA, formula, kind, (), {k: v.tolist() for k, v in draws.items()}, 0.2)


@pytest.fixture(scope="module")
def logistic():
    """Draws of a logistic regression of twenty thousand people, twice as wide as without privacy."""
    random = np.random.default_rng(0)
    # x is divided by 4 in the model.
    means, sds = np.array([-1.1, 3.2, 0.5]), 2 * np.array([0.025, 0.08, 0.035])
    theta = means + sds * random.normal(size=(100, 3))
    return studied(
        "y ~ x + sex", "bernoulli", {"Intercept": theta[:, 0], "x": theta[:, 1], "sex": theta[:, 2:]}
    )


def people(random, skewed=False):
    x = np.clip(random.normal(size=N) - 0.2, -4, 4)
    x = np.clip(random.exponential(size=N) - 1.5, -4, 4) if skewed else x
    return x, random.integers(0, 2, N), random.choice(4, N, p=[0.4, 0.3, 0.2, 0.1])


def studies(check, times, seed, misfit=lambda p, x, sex, region: p, skewed=False):
    """p of ``times`` checks, of people whose outcomes are those of one of the draws, ``misfit`` apart."""
    random = np.random.default_rng(seed)
    draws = {name: np.asarray(values) for name, values in check.study.draws.items()}
    x, sex, region = people(random, skewed)
    eta = draws["Intercept"][:, None] + draws["x"][:, None] * x / 4 + draws["sex"] * sex
    p = expit(eta)
    mean, grid = p.mean(axis=0), np.asarray(check.grid)
    left = np.clip(np.searchsorted(grid, mean, side="right") - 1, 0, len(grid) - 2)
    share = (mean - grid[left]) / np.diff(grid)[left]
    noise, size = check.mechanism(PRICE, N, "replace_one").noise.sd, check.families[0].cells
    found = []
    for _ in range(times):
        true = misfit(p[random.integers(len(p))], x, sex, region)
        right = 2 * (random.random(N) < share)
        cells = (region * (len(grid) - 1) + left) * 4 + right + (random.random(N) < true)
        counts = np.bincount(cells, minlength=size) + noise * random.normal(size=size)
        released = check.released(check.mechanism(PRICE, N, "replace_one"), counts)
        found.append(check.lines(released, 0.9)[0]["p"])
    return np.array(found)


@pytest.fixture(scope="module")
def by_region(logistic):
    return Check.planned(logistic, ["region"])


@pytest.mark.long
@pytest.mark.parametrize(("times", "seed", "unlike", "most"), [(1000, 1, False, 0.066), (400, 4, True, 0.08)])
def test_one_study_in_twenty_raises_a_false_alarm(by_region, times, seed, unlike, most):
    """Of people like the synthetic ones, and unlike: more come up with probability 1 and 0.5 %."""
    p = studies(by_region, times, seed, skewed=unlike)
    assert (p <= 0.05).mean() <= most and (unlike or (p <= 0.5).mean() < 0.55)


@pytest.mark.long
def test_a_missing_interaction_of_half_an_sd_is_found_in_nine_of_ten_studies(by_region):
    def misfit(p, x, sex, region):
        return expit(logit(p) + np.where(region % 2, 0.5, -0.5) * (x + 0.2))

    assert (studies(by_region, 60, 2, misfit) <= 0.05).mean() >= 0.9


@pytest.mark.long
def test_a_prevalence_off_by_a_fifth_in_one_region_is_found_in_most_studies(by_region):
    p = studies(by_region, 60, 3, lambda p, x, sex, region: np.where(region == 1, 1.2 * p, p))
    assert (p <= 0.05).mean() >= 0.6


def test_power_is_told_before_anything_is_spent_and_falls_with_the_budget(by_region):
    told = [
        by_region.law.power(N, by_region.mechanism(m, N, "replace_one").noise.sd) for m in (PRICE, PRICE / 30)
    ]
    shares = [[int(words.split("probability ")[1].partition("%")[0]) for words in one] for one in told]
    assert "missing interaction with region" in told[0][0] and "off by a fifth in region e" in told[0][1]
    assert shares[0][0] >= 90 and shares[1][0] < 40


def test_rounded_predictions_add_up_to_predictions_on_average(by_region):
    import jax

    with jax.enable_x64(True):
        grid = np.asarray(by_region.grid)
        uniform = np.random.default_rng(0).random(50_000)
        for p in (0.001, 0.2, 0.77):
            left, right = jax.vmap(lambda u, p=p: by_region._rounded(p, u))(uniform)
            assert grid[np.asarray(left + right)].mean() == pytest.approx(p, abs=0.005)


def test_a_row_is_in_the_cell_of_its_group_prediction_and_outcome(logistic):
    check = Check.planned(logistic, ["sex", "region"])
    row = {"x": 0.4, "sex": 1.0, "region": 2.0, "y": 1.0, "uniform": 0.999999}
    ((cell, t),) = check.of_row({name: np.asarray(value) for name, value in row.items()})
    group, rest = divmod(int(cell), (len(check.grid) - 1) * 4)
    assert check.groups[group] == "sex m, region w" and rest % 4 == 1 and t is None
    theta = [np.asarray(logistic.draws[name]) for name in ("Intercept", "x", "sex")]
    p = expit(theta[0] + theta[1] * 0.1 + theta[2][:, 0]).mean()
    assert check.grid[rest // 4] <= p < check.grid[rest // 4 + 1]


def uniformity(check, outcomes):
    """Lines of a check, at a large budget, of 4,000 people with such outcomes."""

    def named(random, x, sex):
        found = outcomes(random, x, sex)
        return found if isinstance(found, dict) else {check.study.design.formula.outcome: found.astype(float)}

    ((lines, _),) = lines_of_studies(check, 1, 4000, 100.0, named, seed=7)
    return lines


def steps(cumulative):
    """The time at which a hazard of 1, and of e^0.8 after 2, has added up to so much."""
    return np.where(cumulative < 2, cumulative, 2 + (cumulative - 2) * np.exp(-0.8))


def chosen(random, logits):
    """One of four levels, of which the first has logit 0."""
    logits = np.stack([0 * logits[0], *logits])
    return np.argmax(logits + random.gumbel(size=logits.shape), axis=0)


def constant(**values):
    return {name: np.array([value] * 5) for name, value in values.items()}


def followed(times):
    """Times until death of people who are lost at random; ``times(chance, x, sex)`` of an exponential."""

    def outcomes(random, x, sex):
        time, lost = times(random.exponential(size=len(x)), x, sex), random.uniform(0, 14, len(x))
        until = np.clip(np.minimum(time, lost), 0.001, 12)
        return {"years": until, "died": (time <= np.minimum(lost, 12)).astype(float)}

    return outcomes


@pytest.mark.parametrize(
    ("kind", "formula", "draws", "fits", "misfit"),
    [
        (
            "poisson", "visits ~ x", constant(Intercept=0.7, x=1.2),
            lambda r, x, s: r.poisson(np.exp(0.7 + 0.3 * x)),
            lambda r, x, s: r.negative_binomial(2, 2 / (2 + np.exp(0.7 + 0.3 * x))),
        ),
        (
            "binomial", "visits | trials(20) ~ x", constant(Intercept=-0.7, x=1.2),
            lambda r, x, s: r.binomial(20, expit(-0.7 + 0.3 * x)),
            lambda r, x, s: r.binomial(20, expit(-0.7 + 0.3 * x + 0.6 * r.normal(size=len(x)))),
        ),
        (
            "gaussian", "bmi ~ x", constant(Intercept=-0.4, x=0.2, sigma=4.0),
            lambda r, x, s: np.clip(25 + 1.25 * x + 4 * r.normal(size=len(x)), 10, 60),
            lambda r, x, s: np.clip(25 + 1.25 * x + 4 * r.normal(size=len(x)) * (1 + s), 10, 60),
        ),
        (
            "cumulative", "grade ~ x", constant(thresholds=[-1.0, 1.0], x=2.0),
            lambda r, x, s: (r.logistic(size=(1, len(x))) + 0.5 * x > np.array([[-1], [1]])).sum(axis=0),
            lambda r, x, s: (r.logistic(size=(1, len(x))) + x / 2 + 0.6 * s > [[-1], [1]]).sum(axis=0),
        ),
        (
            "categorical", "region ~ x", constant(Intercept=[0.2, -0.4, 0.1], x=[1.0, -1.0, 0.5]),
            lambda r, x, s: chosen(r, [0.2 + x / 4, -0.4 - x / 4, 0.1 + x / 8]),
            lambda r, x, s: chosen(r, [0.2 + x / 4 - s, -0.4 - x / 4 - s, 0.1 + x / 8 + s]),
        ),
        (
            "weibull", "surv(years, died) ~ x", constant(Intercept=1.0, x=1.2, alpha=1.5),
            followed(lambda e, x, s: 12 * (e * np.exp(-1 - 0.3 * x)) ** (1 / 1.5)),
            followed(lambda e, x, s: 12 * e * np.exp(-1 - 0.3 * x)),
        ),
        (
            "cox", "surv(years, died, cuts=[2]) ~ x", constant(Intercept=-2.0, x=1.2, steps=[0.8]),
            followed(lambda e, x, s: steps(e * np.exp(2 - 0.3 * x))),
            followed(lambda e, x, s: steps(e * np.exp(2 - 0.3 * x - 0.4 * s))),
        ),
        (
            "lognormal", "surv(years, died) ~ x", constant(Intercept=1.5, x=-1.2),
            followed(lambda e, x, s: np.exp(1.5 - 0.3 * x + ndtri(1 - np.exp(-e)))),
            followed(lambda e, x, s: np.exp(1.5 - 0.3 * x + 1.5 * ndtri(1 - np.exp(-e)))),
        ),
    ],
    ids=["poisson", "binomial", "gaussian", "cumulative", "categorical", "weibull", "cox", "lognormal"],
)  # fmt: skip
def test_other_outcomes_fit_their_own_law_and_not_another(kind, formula, draws, fits, misfit):
    """One draw of each: a correct check fails with probability 2 % here."""
    check = Check.planned(studied(formula, kind, draws), ["sex"])
    lines = uniformity(check, fits)
    assert lines[0]["p"] > 0.02
    whole = {one["what"]: one for one in lines if one["group"] == "everyone"}["χ² of these"]
    assert whole["p"] > 0.002 and whole["value"] >= 0 and whole["low"] == 0 < whole["high"]
    assert uniformity(check, misfit)[0]["p"] < 0.005


@pytest.mark.parametrize("sd", [0.0, 0.3])
def test_what_fits_by_the_test_fits_in_every_bin_of_the_figure(sd):
    """Where draws were uncertain bins lay apart from what fits, and the test said that nothing did."""
    draws = {"Intercept": 0.7 + sd * np.linspace(-2, 2, 50), "x": np.full(50, 1.2)}
    check = Check.planned(studied("visits ~ x", "poisson", draws), [])
    lines = uniformity(check, lambda r, x, s: r.poisson(np.exp(0.85 + 0.3 * x)))
    bins = [one for one in lines if one["what"] == "share of PIT bin"]
    fit = [one["low"] <= one["value"] <= one["high"] for one in bins]
    assert (sum(fit) >= 9) == (lines[0]["p"] > 0.05) == (sd > 0)


def test_values_of_contrasts_are_what_the_page_says_they_are(by_region):
    law = Check.planned(studied("visits ~ x", "poisson", constant(Intercept=0.7, x=1.2)), []).law
    np.testing.assert_allclose(law.shapes.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.square(law.shapes).mean(axis=0), 1)
    assert law.contrasts(np.eye(10)[9])[0] > 0 and law.contrasts(np.eye(10)[0] + np.eye(10)[9])[1] > 0
    # Forty people predicted at the right end of the third bin, all of whom have the outcome.
    cells = np.zeros((4, len(by_region.grid) - 1, 2, 2))
    cells[1, 2, 1, 1] = 40
    end = by_region.grid[3]
    assert by_region.law.contrasts(cells.reshape(4, -1))[1, 0] == pytest.approx(40 * (1 - end))
    released = by_region.released(by_region.mechanism(PRICE, N, "replace_one"), cells.ravel())
    assert "less those predicted" in by_region.blocks(released, 0.9)[2].text


def lines_of_studies(check, times, n, price, outcomes, seed=3):
    """Of ``times`` studies of ``n`` people, with normal noise in the place of OpenDP's, and their rows."""
    random, count = np.random.default_rng(seed), times * n
    x, sex = np.clip(random.normal(size=count), -4, 4), random.integers(0, 2, count).astype(float)
    rows = {"x": x, "sex": sex, **outcomes(random, x, sex), "uniform": random.random(count)}
    parts = check.study.of_people(lambda row: tuple(check.of_row(row)), rows)
    mechanism = check.mechanism(price, n, "replace_one")
    weights = np.concatenate([np.full(one.cells, one.weight) for one in check.families])
    for k in range(times):
        here = slice(k * n, (k + 1) * n)
        exact = mechanism.sums([Contribution(cells[here]) for cells, _ in parts], np.ones(n, bool))
        noised = exact + mechanism.noise.sd / weights * random.normal(size=len(exact))
        yield (
            check.lines(check.released(mechanism, noised), 0.9),
            {name: one[here] for name, one in rows.items()},
        )


def test_shares_of_zeros_and_those_predicted_are_told_by_group():
    """Of 120 intervals of level 0.9 fewer than 0.8 hold their share with probability 0.1 %."""
    zi = constant(Intercept=0.7, x=1.2, zi=0.3)
    check = Check.planned(studied("visits ~ x", "zi_poisson", zi), ["sex"])
    assert [one.cells for one in check.families] == [20, 8]
    hits, predicted = [], []
    for lines, rows in lines_of_studies(
        check, 60, 2000, 1.0, lambda r, x, s: {"visits": r.poisson(np.exp(0.7 + 0.3 * x)) * 1.0}
    ):
        whole, _, men = [one for one in lines if "zeros" in one["what"]]
        true = np.exp(-np.exp(0.7 + 0.3 * rows["x"]))
        hits += [one["low"] <= true.mean() <= one["high"] for one in (whole, men)]
        predicted.append(float(whole["at"]) - (0.3 + 0.7 * true).mean())
    assert np.mean(hits) > 0.8
    assert np.mean(predicted) == pytest.approx(0, abs=0.01)


@pytest.mark.long
@pytest.mark.parametrize(("intercept", "price"), [(1.0, 0.03), (-1.5, 0.08)])
def test_the_power_that_is_told_of_times_is_that_of_people_who_are_cut_off_at_the_end(intercept, price):
    """Nearly all and a fifth of whom have the event by then: told and seen, in 100 studies, within 15 %."""
    draws = constant(Intercept=intercept, x=1.2, alpha=1.5)
    check = Check.planned(studied("surv(years, died) ~ x", "weibull", draws), ["sex"])
    n = 4000
    (words,) = check.law.power(n, check.mechanism(price, n, "replace_one").noise.sd)
    assert "all followed until 12 years," in words
    told = int(words.split("probability ")[1].partition("%")[0]) / 100

    def outcomes(r, x, s):
        chance = ndtr(ndtri(r.random(len(x))) + 0.2 * s)  # of men a fifth of an sd later
        years = 12 * (-np.log1p(-chance) * np.exp(-intercept - 0.3 * x)) ** (1 / 1.5)
        return {"years": np.clip(years, 0.001, 12), "died": (years < 12) * 1.0}

    seen = [lines[0]["p"] <= 0.05 for lines, _ in lines_of_studies(check, 100, n, price, outcomes)]
    assert told == pytest.approx(np.mean(seen), abs=0.15) and 0.1 < told < 0.995


def test_a_group_must_be_a_category_and_the_grid_rises_from_0_to_1(logistic):
    with pytest.raises(pmc.DeclarationError, match="levels of categories"):
        Check.planned(logistic, ["x"])
    with pytest.raises(pmc.DeclarationError, match="grid"):
        Check(SCHEMA, logistic, (), (0.0, 0.6, 0.5, 1.0))
