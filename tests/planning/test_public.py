"""Public rows shape a plan and enter no statement; a plan keeps what they said."""

import json
from dataclasses import replace

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.model import read
from private_mcmc.planning import MomentsStage, PathStage
from private_mcmc.planning.affine import affine_policy
from private_mcmc.planning.planners import public_columns, summary_of
from private_mcmc.planning.simulate import posterior_mode, simulate
from tests.examples_of_models import logistic

P, N = 5, 20_000
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=P), y=pmc.Binary())
TARGET = pmc.Target(epsilon=0.3, delta=1e-6)


def people(count, seed, effects=(-2.0, 3.0, -3.0, 4.0, 1.0)):
    random = np.random.default_rng(seed)
    X = np.column_stack([np.ones(count), random.random((count, P - 1)) ** 2]) / np.sqrt(P)
    y = random.random(count) < 1 / (1 + np.exp(-X @ np.array(effects)))
    return {"X": X, "y": y.astype(int)}


@pytest.fixture(scope="module")
def policy():
    return affine_policy(read(logistic, ROWS, n=N), N, "replace_one", 0.077)


def error(policy, table, runs=24):
    """Root mean square over runs, in posterior sds."""
    weights = np.ones(len(table["y"]))
    mode, covariance = posterior_mode(policy, table, weights)
    histories = [simulate(policy, table, weights, seed) for seed in range(runs)]
    found = np.array([policy.conclude(history).draws.mean(axis=0) for history in histories])
    return float(np.sqrt(np.mean(np.square(found - mode) / np.diag(covariance))))


@pytest.mark.long
def test_public_rows_begin_at_their_mode_and_save_stages(policy):
    taught = replace(policy, public=summary_of(policy, public_columns(policy.reading, people(3000, 1))))
    first = taught.next(())
    assert isinstance(policy.next(()), MomentsStage) and isinstance(first, PathStage)
    np.testing.assert_array_equal(first.start, taught.public.start)
    assert taught.public.rows == 3000
    private = people(N, 0)
    history = simulate(taught, private, np.ones(N), 0)
    assert [completed.stage.name for completed in history].count("warm-up") == 1


@pytest.mark.long
def test_public_rows_of_this_population_or_another_do_little_harm(policy):
    """24 runs each: means of 120 errors, whose ratio has a standard error of about 0.09."""
    private = people(N, 0)
    none = error(policy, private)
    like, other = people(2000, 1), people(2000, 2, effects=(2.0, -3.0, 3.0, -4.0, 0.0))
    errors = [
        error(replace(policy, public=summary_of(policy, public_columns(policy.reading, table))), private)
        for table in (like, other)
    ]
    assert max(errors) < 1.35 * none


@pytest.mark.long
def test_a_statement_names_public_rows_and_rests_on_no_number_of_theirs_and_a_saved_plan_knows_them(tmp_path):
    plain = pmc.plan(logistic, ROWS, TARGET, n=N, guarantee="run")
    taught = pmc.plan(logistic, ROWS, TARGET, n=N, guarantee="run", public_rows=people(2000, 1))
    said, without = taught.statement.to_dict(), plain.statement.to_dict()
    (line,) = set(said["argument"].pop("assumptions")) - set(without["argument"].pop("assumptions"))
    assert "2000 rows" in line and "public" in line
    assert said == without
    assert "2,000" in taught.report().to_html() and "public rows" not in plain.report().to_html()
    taught.save(tmp_path / "plan.json")
    loaded = pmc.Plan.load(tmp_path / "plan.json", logistic)
    assert loaded.statement.to_dict() == taught.statement.to_dict()
    assert taught.statement.verify()
    np.testing.assert_array_equal(loaded.policy.next(()).start, taught.policy.next(()).start)
    record = json.loads((tmp_path / "plan.json").read_text())
    assert record["public"]["rows"] == 2000


@pytest.mark.parametrize(
    "given",
    [
        {"X": np.zeros((4, P))},
        {"X": np.zeros((4, P)), "y": np.zeros(3)},
        {"X": np.zeros((4, P + 1)), "y": np.zeros(4)},
        {"X": np.zeros((0, P)), "y": np.zeros(0)},
    ],
)
def test_public_rows_of_another_shape_are_refused(policy, given):
    with pytest.raises(pmc.DeclarationError, match="public_rows"):
        public_columns(policy.reading, given)
