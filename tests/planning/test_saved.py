"""A saved plan is made again from its file, for the same model, and for no other."""

import json

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.planning.policy import _digest
from tests.examples_of_models import logistic

ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
TARGET = pmc.Target(epsilon=1.0, delta=1e-6)
N = 5_000


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    plan = pmc.plan(logistic, ROWS, TARGET, n=N, guarantee="run")
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    plan.save(path)
    return plan, path


@pytest.mark.slow
def test_a_saved_plan_buys_the_same_stages_at_the_same_price_with_the_same_prediction(saved):
    plan, path = saved
    again = pmc.Plan.load(path, logistic)
    assert again.statement == plan.statement and again.prediction == plan.prediction
    assert (again.target, again.n, again.temper) == (plan.target, plan.n, plan.temper)
    first, same = (each.policy.next(()) for each in (plan, again))
    assert (first.name, first.statement) == (same.name, same.statement)


def test_a_saved_plan_is_of_one_model(saved):
    def steeper(X, y=None):
        w = numpyro.sample("w", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    with pytest.raises(pmc.DeclarationError, match="another model"):
        pmc.Plan.load(saved[1], steeper)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("prediction", {"rms": 0.1}, "changed"),
        ("temper", 2.0, "changed"),
        ("library", "0", "changed"),
        ("digest", "", "changed"),
        ("target", {"epsilon": 9.0, "delta": 1e-6, "adjacency": "replace_one"}, "statement"),
        ("target", {"epsilon": 1.0, "delta": 1e-6, "adjacency": "add_remove"}, "statement"),
        ("rows", pmc.Rows(X=pmc.Ball(2.0, dim=2), y=pmc.Binary()).to_dict(), "another model"),
        ("guarantee", "posterior", "certificate"),
        ("format", 1, "format"),
        ("n", "many", "no record"),
        ("n", float("inf"), "no record"),
        ("prediction", {"rms": "x", "bias": 0, "monte_carlo": 0, "discretisation": 0}, "no record"),
    ],
)
def test_a_file_that_says_something_else_is_refused(saved, tmp_path, name, value, words):
    record = json.loads(saved[1].read_text()) | {name: value}
    if words != "changed":  # by someone who knows how the file is made
        del record["digest"]
        record |= {"digest": _digest(record)}
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(record))
    with pytest.raises(pmc.DeclarationError, match=words):
        pmc.Plan.load(changed, logistic)


def test_what_is_no_plan_is_refused_in_words(tmp_path):
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    for path in (empty, tmp_path / "missing.json"):
        with pytest.raises(pmc.DeclarationError, match="cannot be used"):
            pmc.Plan.load(path, logistic)


@pytest.mark.long
def test_public_arguments_are_part_of_the_file(tmp_path):
    def scaled(X, y=None, scale=None):
        w = numpyro.sample("w", dist.Normal(0.0, scale).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    given = {"scale": np.array([2.0, 3.0])}
    plan = pmc.plan(scaled, ROWS, TARGET, n=N, guarantee="run", model_args=given)
    plan.save(tmp_path / "plan.json")
    again = pmc.Plan.load(tmp_path / "plan.json", scaled)
    np.testing.assert_array_equal(again.model_args["scale"], given["scale"])
