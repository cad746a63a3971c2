import pytest

from benchmarks.planner_grid import SETTINGS, Setting
from private_mcmc.plan import affine, reach


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_is_scaled_and_put_back(setting: Setting) -> None:
    before = {name: getattr(affine, name) for name in setting.constants}
    chosen = reach.Reach.best_clip
    with setting.scaled(2.0):
        for name, value in before.items():
            assert getattr(affine, name) == 2 * value
        assert (reach.Reach.best_clip is chosen) == bool(setting.constants)
    assert {name: getattr(affine, name) for name in setting.constants} == before
    assert reach.Reach.best_clip is chosen
