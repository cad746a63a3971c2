"""Predictions, comparisons and slopes are those of marginaleffects; groups are averaged over their law."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from scipy.special import expit

import private_mcmc as pmc
from private_mcmc.data.answers import Answers
from private_mcmc.data.design import design
from private_mcmc.data.families import family
from private_mcmc.data.formula import read_formula
from tests.data.fields import flag, levels, number, schema

SCHEMA = schema(
    *(number("age", 20, 80), levels("arm", "a", "b", "c"), levels("sex", "f", "m")),
    *(levels("region", "n", "s", "w"), flag("y"), levels("grade", "low", "mid", "high")),
)

# Fitted by statsmodels 0.14 to sixty people, `y ~ age + C(arm) + C(sex) + age:C(sex)`: age, arm b, arm c, …
FITTED = (-0.883100819995, 0.032403550565, -0.951143470638, 0.262944984411, -0.31780097525, 0.01213234751)
ROW = np.arange(60)
PEOPLE = {
    "age": 20.0 + (ROW * 37) % 61,
    "arm": np.array(["a", "b", "c"])[ROW % 3],
    "sex": np.where((ROW * 7) % 5 < 2, "f", "m"),
}


def answers_of(formula, draws, kind="bernoulli", priors=(), **options):
    return Answers(design(read_formula(formula, SCHEMA), SCHEMA, family(kind), priors), draws, **options)


def drawn(coefficients):
    """Coefficients ``(draws, 6)`` as draws of a formula whose numbers are centred and scaled."""
    intercept, age, b, c, m, by_sex = coefficients.T
    draws = {
        # Age is (x − 50)/30 in the model.
        "Intercept": intercept + 50 * age,
        "age": 30 * age,
        "arm": np.stack([b, c], axis=1),
        "sex": (m + 50 * by_sex)[:, None],
        "age:sex": 30 * by_sex[:, None],
    }
    return answers_of("y ~ age + arm + sex + age:sex", draws)


@pytest.fixture(scope="module")
def fitted():
    return drawn(np.array([FITTED, FITTED]))


# Printed by marginaleffects 0.6.0 for this fit: avg_comparisons.
BY_SEX = [
    ("f", "b - a", -0.211681), ("f", "c - a", 0.056981), ("f", "c - b", 0.268662),
    ("m", "b - a", -0.191300), ("m", "c - a", 0.040902), ("m", "c - b", 0.232202),
]  # fmt: skip


def test_average_comparisons_by_level_are_those_of_marginaleffects(fitted):
    found = fitted.comparisons("arm", PEOPLE, by=["sex"])
    assert list(zip(found.sex, found.contrast, found.estimate.round(6), strict=True)) == BY_SEX
    assert list(found) == ["sex", "term", "contrast", "estimate", "conf_low", "conf_high"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_means_and_intervals_are_those_of_what_marginaleffects_finds_for_each_draw():
    """Estimates, and ends of intervals, as quantiles over draws; its 0.6 does not run with Polars 2."""
    if int(polars.__version__.partition(".")[0]) > 1:
        pytest.skip("marginaleffects 0.6 calls what Polars 2 has removed: nox -s marginaleffects runs this")
    me = pytest.importorskip("marginaleffects", reason="nox -s marginaleffects runs this")
    from statsmodels.api import families
    from statsmodels.formula.api import glm

    people = pandas.DataFrame({**PEOPLE, "y": ROW % 2, "weight": 1.0 + ROW % 4})
    people = people.astype({"arm": "category", "sex": "category"})
    fit = glm("y ~ age + arm + sex + age:sex", people, family=families.Binomial()).fit()
    coefficients = np.array(FITTED) * (1 + 0.3 * np.random.default_rng(0).normal(size=(5, 6)))
    answers, by_sex = drawn(coefficients), {"by": "sex", "vcov": False}
    pairs, ages = {"arm": "pairwise"}, {"age": [40, 60]}
    asked = [
        (lambda: me.predictions(fit, vcov=False), answers.predictions(PEOPLE)),
        (lambda: me.avg_predictions(fit, **by_sex), answers.predictions_by(PEOPLE, by=["sex"])),
        (lambda: me.avg_comparisons(fit, pairs, **by_sex), answers.comparisons("arm", PEOPLE, ["sex"])),
        (
            lambda: me.avg_comparisons(fit, pairs, comparison="ratioavg", **by_sex),
            answers.comparisons("arm", PEOPLE, ["sex"], scale="ratio"),
        ),
        (
            # The log odds ratio of one person is the difference of the link.
            lambda: me.comparisons(fit, pairs, comparison="lnor", newdata=people[:1], vcov=False),
            answers.comparisons("arm", {"age": 20, "sex": "f"}, scale="link"),
        ),
        (
            lambda: me.avg_comparisons(fit, pairs, newdata=people, wts="weight", **by_sex),
            answers.comparisons("arm", PEOPLE, ["sex"], 1.0 + ROW % 4),
        ),
        (lambda: me.avg_comparisons(fit, ages, vcov=False), answers.comparisons("age=40,60", PEOPLE)),
        (lambda: me.avg_slopes(fit, "age", by="arm", vcov=False), answers.slopes("age", PEOPLE, ["arm"])),
    ]
    for theirs, ours in asked:
        found = []
        for intercept, age, *rest, interaction in coefficients:
            fit._results.params = np.array([intercept, *rest, age, interaction])
            found.append(theirs()["estimate"].to_numpy())
        if {"contrast", "sex"} <= set(ours):
            ours = ours.sort_values(["contrast", "sex"])
        ends = np.stack([np.mean(found, axis=0), *np.quantile(found, [0.05, 0.95], axis=0)], axis=1)
        np.testing.assert_allclose(ours[["estimate", "conf_low", "conf_high"]], ends, rtol=1e-4, atol=1e-7)


def test_contrasts_of_the_link_are_coefficients_and_reference_leaves_other_pairs_out(fitted):
    found = fitted.comparisons("arm", scale="link", reference=True)
    assert found.estimate.to_list() == pytest.approx(FITTED[2:4])
    assert found.contrast.to_list() == ["b - a", "c - a"]


def test_a_difference_of_profiles_is_that_of_their_predictions(fitted):
    a, b = {"age": 30, "sex": "f", "arm": "a"}, {"age": 50, "sex": "m", "arm": "c"}
    found = fitted.difference(a, b)
    here, there = (fitted.predictions(one).estimate[0] for one in (a, b))
    assert found.estimate[0] == pytest.approx(there - here)
    assert found.contrast[0] == "age=50, sex=m, arm=c - age=30, sex=f, arm=a"


def test_a_profiles_word_is_a_label_before_it_is_another_levels_value():
    labels = [{"value": value, "label": label} for value, label in zip("012", "12x", strict=True)]
    declared = schema(levels("arm", "0", "1", "2", categories=labels), flag("y"))
    read = design(read_formula("y ~ arm", declared), declared, family("bernoulli"), ())
    answers = Answers(read, {"Intercept": np.zeros(2), "arm": np.tile([1.0, 2.0], (2, 1))})
    found = [answers.predictions({"arm": word}).estimate[0] for word in ("1", "2", "x", "0")]
    assert found == pytest.approx(expit([0.0, 1.0, 2.0, 0.0]))


@pytest.mark.parametrize("form", [dict, pandas.DataFrame, pyarrow.table])
def test_a_frame_of_profiles_is_what_a_list_of_them_is(fitted, form):
    columns = {"age": [40, 50], "sex": ["m", "f"]}
    people, listed = form(columns), [{"age": 40, "sex": "m"}, {"age": 50, "sex": "f"}]
    assert fitted.predictions(people).estimate.equals(fitted.predictions(listed).estimate)
    assert fitted.predictions_by(people).equals(fitted.predictions_by(listed))


def test_the_probability_of_a_statement_is_its_share_of_draws():
    draws = {"Intercept": np.zeros(4), "age": np.array([-30.0, 30, 60, 90]), "sex": np.array([[0.5]] * 4)}
    answers = answers_of("y ~ age + sex", draws)
    assert answers.probability("age > 0") == 0.75
    assert answers.probability("age >= 2") == 0.5
    assert answers.probability("sex[m] < age") == 0.75
    label = "age[>40]:sex[<=m]"
    by_name = {**answers.by_name, label: np.array([-1.0, 1, 1, 1])}
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(type(answers), "by_name", by_name)
        assert answers.probability(f"{label} > 0") == answers.probability(f"0<{label}") == 0.75
    with pytest.raises(pmc.DeclarationError, match="none of"):
        answers.probability("height > 0")
    with pytest.raises(pmc.DeclarationError, match="a coefficient and a number"):
        answers.probability("age")


@pytest.fixture
def grouped():
    size = 4000
    draws = {"Intercept": np.full(size, 1.0), "1 | region": np.zeros((size, 3))}
    draws["sd(1 | region)"] = np.full(size, 2.0)
    return answers_of("y ~ 1 + (1 | region)", draws, priors=["sd(1 | region) ~ halfnormal(1)"])


def test_a_population_is_averaged_over_its_groups_and_not_taken_at_an_average_one(grouped, fitted):
    nodes = np.linspace(-9, 9, 20_001)
    law = np.exp(-(nodes**2) / 2)
    exact = (expit(1 + 2 * nodes) * law).sum() / law.sum()
    integrated = Answers(grouped.design, grouped.draws, groups="integrated")
    # Gauss–Hermite of 31 points.
    assert integrated.predictions({}).estimate[0] == pytest.approx(exact, abs=1e-4)
    assert grouped.predictions({}).estimate[0] == pytest.approx(expit(1.0))
    # Of a group that is named there is nothing to average.
    assert integrated.predictions({"region": "s"}).estimate[0] == pytest.approx(expit(1.0))
    without = Answers(fitted.design, fitted.draws, groups="integrated")
    assert "averaged over groups" in integrated.of_whom and not without.of_whom


def test_a_new_group_is_as_uncertain_as_groups_differ(grouped):
    found = Answers(grouped.design, grouped.draws, groups="new").predictions({}).iloc[0]
    assert found.conf_low == pytest.approx(expit(1 - 1.645 * 2), abs=0.02)
    assert found.conf_high == pytest.approx(expit(1 + 1.645 * 2), abs=0.02)
    with pytest.raises(pmc.DeclarationError, match="one of average"):
        Answers(grouped.design, grouped.draws, groups="none")


def test_a_groups_slope_and_its_correlation_widen_what_is_averaged_over():
    size = 3
    draws = {
        "Intercept": np.zeros(size), "age": np.zeros(size),
        "1 | region": np.zeros((size, 3)), "age | region": np.zeros((size, 3)),
        "sd(1 | region)": np.full(size, 2.0), "sd(age | region)": np.full(size, 1.5),
    }  # fmt: skip
    made = design(
        read_formula("y ~ age + (age | region)", SCHEMA), SCHEMA, family("bernoulli"),
        ["sd(1 | region) ~ halfnormal(1)", "sd(age | region) ~ halfnormal(1)"],
    )  # fmt: skip
    names = {effect.name for effect in made.effects if effect.term.group}
    assert names == {"1 | region", "age | region"}
    draws |= {site: np.full(size, 0.75) for site in made.correlations}
    for age, z in ((50.0, 0.0), (80.0, 1.0), (35.0, -0.5)):
        found = made.group_sd(draws, {"age": age})
        assert found == pytest.approx(np.sqrt(4 + 2 * 0.5 * 2 * 1.5 * z + (1.5 * z) ** 2))


def test_levels_of_an_outcome_have_lines_of_their_own_and_sum_to_one():
    draws = {"thresholds": np.array([[-1.0, 1.0]] * 5), "sex": np.array([[0.7]] * 5)}
    answers = answers_of("grade ~ sex", draws, "cumulative")
    found = answers.predictions_by([{}], by=["sex"])
    assert found.level.to_list() == ["low", "mid", "high"] * 2
    assert found.groupby("sex").estimate.sum().to_list() == pytest.approx([1, 1])
    assert answers.comparisons("sex").estimate.sum() == pytest.approx(0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda one: one.comparisons("height"), "the formula reads"),
        (lambda one: one.comparisons("age"), "two values"),
        (lambda one: one.comparisons("arm", scale="odds"), "one of response"),
        (lambda one: one.slopes("arm"), "a number"),
        (lambda one: one.predictions_by([{}], by=["age"]), "categories"),
        (lambda one: one.predictions_by([{}], weights=[0.0]), "above 0"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(fitted, call, words):
    with pytest.raises(pmc.DeclarationError, match=words):
        call(fitted)
