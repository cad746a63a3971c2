"""How far persons reach: the run's clip and the widths of its draws follow released counts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc import models
from private_mcmc.domains.columns import PRESENT
from private_mcmc.domains.persons import OWN_ROWS, grouped
from private_mcmc.model import read
from private_mcmc.planning.facts import Facts, facts_of
from private_mcmc.planning.general import RUN, WARM_UP, Policy
from private_mcmc.planning.influence import MIDDLES, REACH, counts_reach, reach_of
from private_mcmc.planning.stages import CompletedStage, History, PathStage, QueryStage
from private_mcmc.potential.rowwise import of_rows
from private_mcmc.release import Contribution, SecondMoments, Sums
from private_mcmc.target import Unit
from tests.examples_of_models import observed

N, AT_MOST = 4000, 3
ROWS = pmc.Rows(X=pmc.Ball(1.5, dim=2), y=pmc.Counts(60), who=pmc.Person(AT_MOST))


def visits(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    observed(X, dist.Poisson(jnp.exp(X @ w)), y)


def facts(n: int = N, rows: pmc.Rows = ROWS) -> Facts:
    return facts_of(read(visits, rows, n=n), n, "replace_one", 0.6)


def bought(policy: Policy, longer: float) -> History:
    """The stages, with persons whose sums are ``longer`` times a typical length, with a tail."""
    history: History = ()
    while (stage := policy.next(history)) is not None:
        if stage.name == REACH:
            lengths = longer * np.random.default_rng(0).lognormal(-0.3, 0.8, N)
            cells = np.searchsorted(np.sqrt(MIDDLES[1:] * MIDDLES[:-1]), lengths)
            values = np.bincount(cells, minlength=len(MIDDLES)).astype(float)
            history += (CompletedStage(stage, Sums(values[None], 11.0)),)
        elif isinstance(stage, PathStage):
            states = 0.01 * np.random.default_rng(1).normal(size=(stage.schedule.num_steps, 2))
            history += (CompletedStage(stage, states),)
        else:
            sd = stage.mechanism.noise.sd
            history += (CompletedStage(stage, SecondMoments(np.eye(2), sd, stage.statement)),)
    return history


def reach_stage(made: Facts) -> QueryStage:
    stage = counts_reach(made, np.zeros(2), made.metric)
    assert stage is not None
    return stage


def clip_of(history: History) -> float:
    run = next(one.stage for one in history if one.stage.name == RUN)
    assert isinstance(run, PathStage) and run.schedule.clip is not None
    return run.schedule.clip * np.sqrt(run.schedule.temper)


def test_persons_who_reach_further_get_a_wider_clip_and_wider_draws():
    policy = Policy(facts())
    as_said, further = bought(policy, 1.0), bought(policy, 6.0)
    assert [one.stage.name for one in further][-3:-1] == [REACH, RUN]
    assert clip_of(further) > 2.5 * clip_of(as_said)
    near, far = policy.conclude(as_said), policy.conclude(further)
    assert far.prediction.rms > 1.5 * near.prediction.rms
    assert far.draws.std() > 1.5 * near.draws.std()
    # A likelihood of releases would take the model at its word.
    assert far.beyond


def test_the_counts_are_of_persons_within_the_budget():
    made = facts()
    history = bought(Policy(made), 3.0)
    counted = next(one.stage for one in history if one.stage.name == REACH)
    assert counted.statement.unit == Unit("who", AT_MOST) and counted.statement.verify()
    assert sum((one.stage.statement.gdp or np.inf) ** 2 for one in history) <= made.budget**2


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_one_person_moves_the_counts_by_no_more_than_is_charged(adjacency):
    """Slots that nobody has are counted under ``replace_one`` alone, whose charge is for two cells."""
    made = replace(facts(), adjacency=adjacency)
    stage = reach_stage(made)
    charged = float(stage.statement.argument.constants["sensitivity"])
    rng, people = np.random.default_rng(0), 60
    codes = np.repeat(np.arange(people), AT_MOST)
    X = np.column_stack([np.ones(len(codes)), rng.uniform(-1, 1, len(codes))])
    y = rng.poisson(2.0, len(codes))

    def counted(keep, outcome):
        persons = grouped({"X": X[keep], "y": outcome[keep]}, codes[keep], people + 5, AT_MOST)
        present = persons.pop(PRESENT) | (adjacency == "replace_one")
        with jax.enable_x64(True):
            cells = np.asarray(of_rows(stage.of_row, persons))
        return stage.mechanism.sums((Contribution(cells),), present)

    everybody = np.ones(len(codes), bool)
    before, moved = counted(everybody, y), []
    for person in (0, 17, people - 1):
        own = codes == person
        moved.append(np.linalg.norm(counted(~own, y) - before))
        if adjacency == "replace_one":
            moved.append(np.linalg.norm(counted(everybody, np.where(own, 60, y)) - before))
    assert 0.99 * charged <= max(moved) <= charged


def test_a_person_is_in_the_cell_of_the_length_of_the_sum_of_its_rows():
    made = facts()
    stage = reach_stage(made)
    X = np.array([[1.0, 0.0], [1.0, 0.5], [1.0, -0.5]])
    with jax.enable_x64(True):
        person = {"X": jnp.asarray(X), "y": jnp.asarray([9, 20, 55]), OWN_ROWS: jnp.asarray([1, 1, 0])}
        found = int(stage.of_row(person))
        length = np.linalg.norm((np.array([8.0, 19.0]) @ X[:2]) @ made.metric.root)
    length /= np.sqrt(made.metric.trace / N)
    assert abs(np.log(length / MIDDLES[found])) <= np.log(MIDDLES[1] / MIDDLES[0]) / 2 + 1e-9


def test_counts_that_noise_hides_say_nothing_and_weights_of_few_outcomes_cost_no_tail():
    made = facts()
    stage = reach_stage(made)
    hidden = Sums(np.full((1, len(MIDDLES)), 20.0), 11.0)
    assert reach_of(made, CompletedStage(stage, hidden)) is None
    single = facts(rows=pmc.Rows(**ROWS.columns))
    assert counts_reach(single, np.zeros(2), single.metric) is not None and Policy(single).assumed == ()
    few = facts(rows=pmc.Rows(X=pmc.Ball(1.5, dim=2), y=pmc.Counts(5)))
    stage = reach_stage(few)
    assert stage.statement.gdp < 0.11 * few.budget
    values = np.zeros(len(MIDDLES))
    values[8:16] = N / 8
    reach = reach_of(few, CompletedStage(stage, Sums(values[None], 5.0)))
    assert reach is not None and not reach.tail.any()
    assert reach.bias(MIDDLES[16]) < 0.01 < reach.bias(MIDDLES[9])


def test_what_is_assumed_of_persons_is_said():
    many, few = Policy(facts()).assumed, Policy(facts(n=100)).assumed
    assert "counts how far persons' sums reach" in many[0] and "too few persons" in few[0]
    warm_up = Policy(facts(n=100))
    assert counts_reach(warm_up.facts, np.zeros(2), warm_up.facts.metric) is None
    assert WARM_UP in [one.stage.name for one in bought(warm_up, 1.0)]


def test_events_are_told_of_by_their_curvature_and_by_how_far_public_rows_reach():
    """Counts cut off at one event had squared scores of 25 times the information, and an error of a third."""
    reading = read(models.survival, models.survival_rows(2, 5.0), n=N)
    known = facts_of(reading, N, "replace_one", 0.6)
    theta, x, time = np.array([0.4, -1.0]), np.array([0.5, -0.8]), 4.0
    with jax.enable_x64(True):
        row = {"X": jnp.asarray(x), "time": jnp.asarray(time), "event": jnp.asarray(1)}
        told = np.asarray(known.likelihood.information(theta[None], np.eye(2), row))
    np.testing.assert_allclose(told.T @ told, time * np.exp(x @ theta) * np.outer(x, x), rtol=1e-9)
    (counts,), run = Policy(known).foreseen()
    assert counts.stage.name == REACH and counts.counts.values.sum() == pytest.approx(N)
    assert run.schedule.clip > 2 * Policy(known)._run(known.metric, run.start, (), 0.5).schedule.clip
    assert Policy(facts()).foreseen()[0] == ()
