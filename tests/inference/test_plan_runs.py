"""Plans that are run: the budget's filter stands between a policy and the rows."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.inference import execute_plan, last_run
from private_mcmc.inference.posterior import GivenReleases
from private_mcmc.kernels import ChainRunner, PrivateULA
from private_mcmc.kernels.partitions import Partition, on_devices
from private_mcmc.planning import CompletedStage, PathStage, QueryStage
from private_mcmc.planning.policy import without_prediction
from private_mcmc.release import Family, plan_second_moments, plan_sums
from tests.examples_of_models import logistic, two_normals
from tests.release.test_no_path_to_secrets import MARKS, secrets_in
from tests.soundness.front_door.plans import Fixed

ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary())
N = 400


fixed = partial(Fixed, draws=np.arange(12.0).reshape(4, 3))


def path(name="path", adjacency="replace_one", **fields):
    schedule = PrivateULA(logistic, step_size=0.01, clip=0.5).schedule(
        adjacency=adjacency, num_rows=N, dim=3, num_steps=20, num_chains=1, release="path"
    )
    return PathStage(name, schedule, np.array([1.0, 2.0, 3.0]), **fields)


def moments(gdp, adjacency="replace_one"):
    mechanism = plan_second_moments(gdp, radius=1.0, dim=3, num_rows=N, adjacency=adjacency)
    return QueryStage("moments", mechanism, lambda row: row["X"])


def counts(gdp, adjacency="replace_one"):
    mechanism = plan_sums(gdp, (Family("y", 2),), num_rows=N, adjacency=adjacency)
    return QueryStage("counts", mechanism, lambda row: row["y"])


@pytest.fixture(scope="module")
def planned():
    return without_prediction(logistic, ROWS, pmc.Target(3.0, 1e-6), N, "run", {})


@pytest.fixture(scope="module")
def people():
    random = np.random.default_rng(0)
    X = random.uniform(-0.5, 0.5, size=(N, 3))
    return {"X": X, "y": (random.uniform(size=N) < 0.3).astype(int)}


def run(planned, people, *stages, **options):
    policy = fixed(stages, facts=planned.policy.facts)
    mcmc = pmc.PrivateMCMC.from_plan(replace(planned, policy=policy), progress_bar=False, **options)
    mcmc.run(**people)
    return mcmc


@pytest.mark.long
@pytest.mark.parametrize("ordered", [False, True])
def test_a_summary_says_that_components_may_be_exchanged_unless_they_are_ordered(ordered, capsys):
    rows, asked = pmc.Rows(y=pmc.Box(-9.0, 9.0)), {"ordered": ordered, "sd": 1.0}
    made = without_prediction(two_normals, rows, pmc.Target(3.0, 1e-6), N, "run", asked)
    run(made, {"y": np.random.default_rng(0).normal(size=N)}, path()).print_summary()
    assert ("with components exchanged" in capsys.readouterr().out) != ordered


@pytest.mark.long
class Halves:
    """An engine of one's own."""

    def partitions(self, columns, slots):
        return on_devices(columns, slots, [None, None])


@pytest.mark.parametrize(
    "where", [{}, {"rows_on_device": 70}, {"engine": Halves()}], ids=lambda w: "".join(w)
)
def test_stages_are_run_in_order_and_charged_as_declared(planned, people, where):
    execution = pmc.Execution(**where)
    mcmc = run(planned, people, moments(0.2), counts(0.3), path(), execution=execution)
    stages = [completed.stage for completed in mcmc.history]
    assert [part.gdp for part in mcmc.statement.parts] == [stage.statement.gdp for stage in stages]
    assert mcmc.statement.gdp == planned.budget and mcmc.statement.verify()
    released, counted, states = (completed.value for completed in mcmc.history)
    np.testing.assert_allclose(released.matrix, people["X"].T @ people["X"], atol=8 * released.noise_sd)
    np.testing.assert_allclose(
        counted.values[0], np.bincount(people["y"], minlength=2), atol=8 * counted.noise_sd
    )
    assert states.shape == (20, 3) and np.abs(states[0] - [1, 2, 3]).max() < 1
    np.testing.assert_array_equal(mcmc.conclusion.draws, np.arange(12.0).reshape(4, 3))
    assert mcmc.get_samples()["w"].shape == (4000, 3)
    np.testing.assert_array_equal(mcmc.released.get_samples()["w"], states)


@dataclass(frozen=True, eq=False)
class Watched:
    """A partition that notes all that it is given."""

    partition: Partition
    seen: list

    def ask(self, question):
        ask = self.partition.ask(question)
        return lambda *given: self.seen.append(given) or ask(*given)


@pytest.mark.slow
def test_where_rows_lie_no_key_of_the_noise_of_a_plan_is_known(planned, people, monkeypatch):
    noise, seen = [], []
    run_chain = ChainRunner.run
    monkeypatch.setattr(ChainRunner, "run", lambda *given: noise.append(given[3].steps) or run_chain(*given))
    placed = execute_plan.placed
    monkeypatch.setattr(execute_plan, "placed", lambda *given: [Watched(one, seen) for one in placed(*given)])
    run(planned, people, path(), counts(0.1), path())
    words = [jax.random.key_data(key).tolist() for key in noise]
    keys = [
        leaf for leaf in jax.tree.leaves(seen) if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    ]
    assert len(words) == 2 and words[0] != words[1] and len(seen) == 42 and len(keys) == 41
    assert not any(jax.random.key_data(key).tolist() in words for key in keys)
    # States, steps and keys of batches: nothing else.
    assert {str([np.shape(leaf) for leaf in jax.tree.leaves(given)]) for given in seen} == {
        "[]",
        "[(1, 3), (), ()]",
    }


@pytest.mark.long
def test_what_stages_released_leads_to_no_row(planned, people):
    """All that draws of the posterior given the releases, and a study, are made from."""
    X = people["X"].copy()
    X[: len(MARKS), :2] = MARKS
    mcmc = run(planned, {"X": X, "y": people["y"]}, moments(0.2), counts(0.3), path())
    assert len(mcmc.history) == 3 and not secrets_in((mcmc._outcome, mcmc.study(), mcmc._charge), [])


@pytest.mark.slow
def test_a_stage_beyond_the_budget_is_refused_before_it_touches_a_row(planned, people, monkeypatch):
    touched = []
    query = execute_plan.query
    monkeypatch.setattr(
        execute_plan, "query", lambda stage, *rest: touched.append(stage.name) or query(stage, *rest)
    )
    most = planned.budget
    with pytest.raises(pmc.NotPrivate, match="more than the budget"):
        run(planned, people, counts(0.9 * most), moments(0.5 * most))
    assert touched == ["counts"]


def test_what_was_bought_outlives_a_stage_that_fails(planned, people, books):
    policy = fixed((counts(0.1), moments(0.9 * planned.budget), moments(0.9 * planned.budget)))
    mcmc = pmc.PrivateMCMC.from_plan(
        replace(planned, policy=policy), progress_bar=False, bookkeeping=pmc.Bookkeeping(books, "people")
    )
    with pytest.raises(pmc.NotPrivate, match="more than the budget"):
        mcmc.run(**people)
    assert [completed.stage.name for completed in mcmc.history] == ["counts", "moments"]
    assert mcmc.statement.gdp == planned.budget and len(mcmc.statement.parts) == 2
    assert mcmc.statement.verify() and books.history("people")[0].outcome == "kept"
    with pytest.raises(pmc.ReleaseError, match="history"):
        _ = mcmc.released
    # The next run forgets it, even one that fails before it buys anything.
    with pytest.raises(pmc.DataSchemaError):
        mcmc.run(X=people["X"])
    assert mcmc.history == () and mcmc.statement.parts == ()


@pytest.mark.slow
def test_a_record_says_which_draws_it_has_where_no_posterior_is_drawn(planned, people, monkeypatch, capsys):
    """A dossier of 83 states of a path did not say that they were the path's."""

    def refused(*_):
        raise pmc.NotYetSupported("rows are green.")

    monkeypatch.setattr(last_run, "posterior_of", refused)
    mcmc = run(planned, people, path())
    mcmc.print_summary()
    said = [remark for remark in mcmc.study().warnings if remark.startswith("Draws: of the path")]
    assert len(said) == 1 and "(rows are green)" in said[0] and said[0] in capsys.readouterr().out
    drawn = GivenReleases(np.random.default_rng(0).normal(size=(4, 10, 3)), np.ones(3))
    monkeypatch.setattr(last_run, "posterior_of", lambda *_: drawn)
    mcmc = run(planned, people, path())
    mcmc.print_summary()
    assert "Draws: of the posterior given what was released." in capsys.readouterr().out
    assert not any("Draws" in remark or "priors" in remark for remark in mcmc.study().warnings)
    # A mean that the prior hardly allows is named, and no other.
    away = drawn._replace(draws=drawn.draws + np.array([0.0, 1e3, 0.0]))
    monkeypatch.setattr(last_run, "posterior_of", lambda *_: away)
    mcmc = run(planned, people, path())
    mcmc.print_summary()
    (said,) = [remark for remark in mcmc.study().warnings if "priors" in remark]
    assert said.startswith("w[1]: means beyond") and said in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("jump", "said"), [(3.0, "overshoot"), (0.0, "far away")])
def test_a_path_that_tells_nothing_is_as_wide_as_the_prior(planned, people, jump, said, monkeypatch):
    """Of a Gaussian process only numbers that overshot were widened: another was 8 of its sds off."""

    def refused(*_):
        raise last_run.Astray("far away.")

    monkeypatch.setattr(last_run, "posterior_of", refused)
    mcmc = run(planned, people, path())
    states = np.random.default_rng(0).normal(size=(20, 3))
    states[:, 0] += jump * (-1.0) ** np.arange(20)
    mcmc.recall(replace(mcmc._outcome, history=(CompletedStage(path(), states),)), None)
    w, path_mean = mcmc.get_samples()["w"], mcmc.conclusion.draws.mean(axis=0)
    assert np.all(np.abs(w.mean(axis=0) - path_mean) < 1.0) and np.all(w.std(axis=0) > 4.0)
    assert any(said in remark for remark in mcmc.study().warnings)


@pytest.mark.parametrize(("memory", "told"), [(0.0, False), (0.99, True)])
def test_a_path_that_has_not_converged_is_told_of(planned, people, memory, told):
    """Of 83 states that counted for five draws the interval of an effect was ten times too narrow."""
    released = run(planned, people, path()).released
    states = np.zeros((1, 200, 3))
    for step, noise in enumerate(np.random.default_rng(0).normal(size=(199, 3))):
        states[:, step + 1] = memory * states[:, step] + noise
    draws = last_run._of_the_path(replace(released, samples={"w": states}), "rows are green")
    assert ("may not have converged" in draws.provenance["draws"]) == told


def test_a_path_may_follow_another_gradient_but_never_beyond_its_clip(planned, people):
    """A loss a million times as steep moves the path no further than the clip allows."""
    several = planned.reading.predictors
    steep = replace(
        several,
        unknown=lambda eta, row: 1e6 * row["scale"] * several.loss(eta, row),
        reads=several.reads | {"scale"},
    )
    reading = replace(planned.reading, term=replace(planned.reading.term, of=steep))
    assert reading.constants.gradient_bound == np.inf
    stage = path(reading=reading, derived=lambda row: {"scale": jnp.ones(())})
    states = np.asarray(run(planned, people, stage).history[0].value)
    assert np.abs(np.diff(states, axis=0)).max() <= 0.01 * (0.5 * N + 3) + 8 * np.sqrt(0.02)


def test_a_path_for_other_rows_or_hidden_states_is_refused(planned, people):
    stage = path()
    with pytest.raises(pmc.DeclarationError, match="other rows"):
        run(planned, people, replace(stage, schedule=replace(stage.schedule, num_rows=N + 1)))
    with pytest.raises(pmc.DeclarationError, match="path"):
        replace(stage, schedule=replace(stage.schedule, release="last"))


def test_the_charge_is_for_the_target_that_the_budget_admits_stages_by(planned):
    """A plan that is given another target afterwards ran for the new one and paid for the old one."""
    other = pmc.PrivateMCMC.from_plan(replace(planned, target=pmc.Target(30.0, 1e-6)))
    assert other.statement.epsilon(1e-6) == pytest.approx(30.0, rel=1e-9)
    with pytest.raises(TypeError, match="statement"):
        replace(planned, statement=replace(planned, target=pmc.Target(0.1, 1e-6)).statement)


@pytest.mark.slow
def test_every_stage_leaves_holes_out_whatever_lies_in_them(planned, people):
    """So little noise that one row would show."""
    stages = moments(1e3, "zero_out"), counts(1e3, "zero_out"), path(adjacency="zero_out")
    plan = replace(planned, target=pmc.Target(2e6, 1e-6, "zero_out"), policy=fixed(stages))
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False, execution=pmc.Execution(unsafe_seed=True))
    present, paths = np.arange(N) % 4 != 1, []
    for garbage in (np.nan, 1.0, 7.0):
        X, y = people["X"].copy(), people["y"].astype(float)
        X[~present], y[~present] = garbage, garbage
        mcmc.run(X=X, y=y, present=present, rng_key=1)
        released, counted, states = (completed.value for completed in mcmc.history)
        wanted = people["X"][present]
        np.testing.assert_allclose(released.matrix, wanted.T @ wanted, atol=0.05)
        np.testing.assert_allclose(
            counted.values[0], np.bincount(people["y"][present], minlength=2), atol=0.05
        )
        paths.append(states)
    np.testing.assert_array_equal(paths[1:], paths[:-1])
    with pytest.raises(pmc.DataSchemaError, match="n=400 public slots"):
        mcmc.run(rng_key=1, **{name: column[present] for name, column in people.items()})
