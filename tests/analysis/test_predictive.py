"""What draws say of one row is what the answers say of its profile; persons' effects are averaged over."""

import jax
import numpy as np
import pytest
from scipy.special import expit

import private_mcmc as pmc
from private_mcmc.analysis.analysis import MOST_DRAWS, Predictive, Studied, synthetic_people, thinned
from private_mcmc.data.answers import Answers
from private_mcmc.data.design import design
from private_mcmc.data.families import family
from private_mcmc.data.formula import read_formula
from tests.data.fields import flag, levels, number, person, schema

SCHEMA = schema(
    *(number("age", 20, 80), number("time", 1, 9), number("visits", 0, 60, "integer")),
    *(levels("sex", "f", "m"), levels("region", "n", "s", "w"), flag("y"), person("id")),
    private_mcmc={"person": {"field": "id", "at_most": "3"}},
)


def read(formula, kind, sites, priors=()):
    made = design(read_formula(formula, SCHEMA), SCHEMA, family(kind), priors)
    random = np.random.default_rng(0)
    draws = {name: 0.5 * np.abs(random.normal(size=(60, *shape))) for name, shape in sites.items()}
    return made, draws


@pytest.mark.parametrize(
    ("formula", "kind", "sites"),
    [
        ("y ~ age + sex + age:sex", "bernoulli", {"Intercept": (), "age": (), "sex": (1,), "age:sex": (1,)}),
        ("y ~ log(age) + (1 | region)", "bernoulli", {"Intercept": (), "log(age)": (), "1 | region": (3,)}),
        ("visits ~ sex + offset(log(time))", "poisson", {"Intercept": (), "sex": (1,)}),
    ],
)  # fmt: skip
def test_the_mean_of_a_rows_law_is_the_answers_prediction(formula, kind, sites):
    made, draws = read(formula, kind, sites)
    profile = {"age": 33.0, "time": 4.0, "sex": 1.0, "region": 2.0}
    codes = {name: value for name, value in profile.items() if name in made.formula.fields}
    with jax.enable_x64(True):
        row = {name: np.asarray(value) for name, value in profile.items()}
        found = np.asarray(Predictive(made, draws).law(row).mean)
    np.testing.assert_allclose(found, made.means(draws, codes), rtol=1e-9)
    assert Answers(made, draws).draws is draws


def test_a_persons_own_effect_is_drawn_from_its_law_and_never_zero():
    made, draws = read("y ~ age + (1 | id)", "bernoulli", {"Intercept": (), "age": ()})
    draws = {"Intercept": np.full(4000, 1.0), "age": np.zeros(4000), "sd(1 | id)": np.full(4000, 2.0)}
    with jax.enable_x64(True):
        p = float(Predictive(made, draws).probability({"age": np.asarray(50.0)}))
    z = np.linspace(-9, 9, 4001)
    exact = (expit(1 + 2 * z) * np.exp(-(z**2) / 2)).sum() / np.exp(-(z**2) / 2).sum()
    assert p == pytest.approx(exact, abs=0.015) and abs(p - expit(1.0)) > 0.05


def test_draws_of_a_record_are_few_and_evenly_spaced():
    found = thinned({"a": np.arange(1000.0), "b": np.zeros((1000, 2))})
    assert len(found["a"]) == len(found["b"]) == MOST_DRAWS
    assert found["a"][0] == 0 and found["a"][-1] == 999


def test_missing_values_that_are_summed_over_are_refused_by_name():
    of = schema(number("age", 20, 80, own={"missing": "marginal"}, missingValues=["?"]), flag("y"))
    study = Studied("f", of, "y ~ age", "bernoulli", (), {"Intercept": [0.0], "age": [0.0]}, 0.1)
    with pytest.raises(pmc.NotYetSupported, match="age"):
        _ = study.predictive


def test_synthetic_people_are_the_same_every_time_and_in_their_ranges():
    one, other = (synthetic_people(SCHEMA, ["age", "sex", "visits"]) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    apart = {"missing": "indicator", "otherwise": "other"}
    rare = schema(levels("sex", "f", "m", own=apart, missingValues=[""]))
    assert set(synthetic_people(rare, ["sex"])["sex"]) == {0.0, 1.0}
    assert one["age"].min() >= 20 and set(one["sex"]) == {0.0, 1.0} and (one["visits"] % 1 == 0).all()
