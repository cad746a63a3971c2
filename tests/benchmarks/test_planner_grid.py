import pytest

from benchmarks.planner_grid import SETTINGS, Setting
from private_mcmc.accounting.curves import gdp
from private_mcmc.domains import Ball, Binary, Rows
from private_mcmc.model import read
from private_mcmc.planning import affine, influence
from private_mcmc.planning.simulate import simulate_affine, synthetic_data
from private_mcmc.planning.stages import PathStage
from tests.examples_of_models import logistic


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_is_scaled_and_put_back(setting: Setting) -> None:
    before = {name: getattr(affine, name) for name in setting.constants}
    chosen = influence.InfluenceCounts.best_clip
    with setting.scaled(2.0):
        for name, value in before.items():
            assert getattr(affine, name) == 2 * value
        assert (influence.InfluenceCounts.best_clip is chosen) == bool(setting.constants)
    assert {name: getattr(affine, name) for name in setting.constants} == before
    assert influence.InfluenceCounts.best_clip is chosen


@pytest.mark.long
def test_a_planner_with_a_scaled_clip_runs_at_it() -> None:
    rows = Rows(X=Ball(1.0, dim=2), y=Binary())
    policy = affine.affine_policy(read(logistic, rows, n=5000), 5000, "replace_one", gdp.budget(3.0, 1e-6))
    data, clips = synthetic_data(policy, 0), []
    conclude = affine.AffinePolicy.conclude

    def spied(self, history):
        run = history[-1].stage
        assert isinstance(run, PathStage)
        clips.append(self.clip_of(run.schedule))
        return conclude(self, history)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(affine.AffinePolicy, "conclude", spied)
        for factor in (1.0, 2.0):
            with SETTINGS[0].scaled(factor):
                simulate_affine(policy, data.rows, data.weights, 0)
    assert clips[1] == pytest.approx(2 * clips[0])
