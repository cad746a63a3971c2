"""Missing values that are integrated over: declared in a schema, they are those of the model that runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from private_mcmc.data.comparisons import read_profile
from private_mcmc.data.table import read_table
from private_mcmc.inference.question import question
from private_mcmc.model import read
from tests.data import fields
from tests.data.fields import number


def schema(sex="marginal"):
    age = number("age", 20, 80, own={"missing": "marginal"})
    return fields.schema(age, fields.levels("sex", "f", "m", own={"missing": sex}), number("y", -1, 1))


def test_columns_say_what_is_missing():
    rows = schema().rows()
    assert {"age", "age_missing", "sex", "sex_missing", "y"} == set(rows.columns)
    table = {"age": ["30", ""], "sex": ["m", "m"], "y": ["0.5", "-0.5"]}
    found = read_table(table, schema(), ("age", "sex", "y"))
    assert found["age"].tolist() == [30.0, 50.0] and found["age_missing"].tolist() == [0, 1]


def test_a_profile_states_a_value_of_such_a_field():
    asked = question(schema(), "y ~ age + sex", family="gaussian").design
    assert read_profile(asked, {"age": "40", "sex": "m"})[0] == {"age": 40.0, "sex": 1.0}


@pytest.mark.slow
def test_a_fit_integrates_over_a_distribution_that_is_modelled():
    asked = question(schema(sex="refuse"), "y ~ age", family="gaussian", priors=["sigma = 0.3"])
    with jax.enable_x64(True):
        found = read(asked.model, asked.rows, n=100)
        # The sd is positive: its coordinate is a logarithm.
        at = {"Intercept": 0.1, "age": 0.6, "mean(age)": 50.0, "sd(age)": np.log(10.0)}
        assert set(found.names) == set(at)
        theta = jnp.array([at[name] for name in found.names])
        loss = jax.jit(found.row_loss)
        missing = loss(theta, {"age": 50.0, "age_missing": 1, "y": 0.2})
        there = loss(theta, {"age": 65.0, "age_missing": 0, "y": 0.2})
    # A unit of age is 30 years: missing ages have a sd of a third of it.
    exact = -stats.norm.logpdf(0.2, 0.1, np.hypot(0.3, 0.6 / 3))
    assert float(missing) == pytest.approx(exact, abs=1e-6)
    known = -stats.norm.logpdf(0.2, 0.1 + 0.3, 0.3) - stats.norm.logpdf(65.0, 50.0, 10.0)
    assert float(there) == pytest.approx(known, abs=1e-9)


@pytest.mark.long
def test_its_parameters_may_be_those_of_the_model():
    asked = question(schema(), "y ~ age + sex", family="gaussian", priors=["sigma = 0.3"])
    found = read(asked.model, asked.rows, n=100)
    assert {"mean(age)", "sd(age)", "shares(sex)"} <= {site.name for site in found.sites}
