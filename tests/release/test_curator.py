"""The curator's side: nothing about a value leaks by accident, everything is there by name."""

import copy
import json
import math
import pickle

import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.errors import ReleaseError
from private_mcmc.release import Curator, CuratorOnly

SECRET = 123456.789


@pytest.fixture
def curator():
    return Curator({"states": np.full((2, 3), SECRET), "moved_rows": 4217})


def test_values_are_there_for_who_asks_by_name(curator):
    assert curator.moved_rows.unsafe_value() == 4217
    assert curator.states.unsafe_value().shape == (2, 3)
    assert dir(curator) == ["moved_rows", "states"]
    with pytest.raises(AttributeError, match="moved_rows"):
        _ = curator.clip_fraction


@pytest.mark.parametrize(
    "slip",
    [
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        np.asarray,
        np.mean,
        float,
        int,
        bool,
        list,
        len,
        math.sqrt,
        json.dumps,
        lambda v: v + 1,
        lambda v: 1 - v,
        lambda v: v > 3,
        lambda v: v == v,
        lambda v: v[0],
        lambda v: np.save("/dev/null", v),
        lambda v: [*v],
    ],
)
def test_slips_are_refused(curator, slip):
    for value in (curator.states, curator.moved_rows):
        with pytest.raises((ReleaseError, TypeError)):
            slip(value)


def test_plots_and_reports_refuse(curator):
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    with pytest.raises(ReleaseError):
        axes.plot(curator.states)
    with pytest.raises(ReleaseError):
        axes.hist(curator.states)
    pyplot.close(figure)


@pytest.mark.parametrize("save", [pickle.dumps, copy.copy, copy.deepcopy])
def test_the_whole_side_is_never_saved(curator, save):
    with pytest.raises(ReleaseError):
        save(curator)
    with pytest.raises(ReleaseError):
        save(curator.states)


def test_no_text_shows_a_value(curator):
    shown = f"{curator!r}{curator!s}{curator.states!r}{curator.states!s}{curator.moved_rows:.2f}"
    assert str(SECRET) not in shown
    assert "4217" not in shown
    assert "no privacy statement" in repr(CuratorOnly("x", 1))


def model(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


@pytest.mark.some(1)
@pytest.mark.parametrize("release", ["path", pmc.Expectations("w")], ids=["path", "expectations"])
def test_a_run_keeps_the_curators_side_only_when_asked(release):
    def driver(**options):
        return pmc.PrivateMCMC(
            pmc.PrivateULA(model, step_size=0.01, clip=1.0, temper=0.1),
            rows=pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary()),
            target=pmc.Target(9.0, 1e-6),
            release=release,
            num_steps=10,
            guarantee="run",
            progress_bar=False,
            **options,
        )

    X = np.asarray([[0.1, 0.2], [3.0, 0.0], [np.nan, 0.0], [0.5, 0.5]] * 5)
    y = np.asarray([0, 1, 1, 0] * 5)
    mcmc = driver(execution=pmc.Execution(curator=True))
    mcmc.run(X=X, y=y)
    assert mcmc.curator.moved_rows.unsafe_value() == 10
    if release == "path":
        states = mcmc.curator.states.unsafe_value()
        assert states.shape == (1, 10, 2)
        assert mcmc.curator.effective_sample_size.unsafe_value().shape == (2,)
        assert not np.array_equal(states[0], mcmc.get_samples()["w"])
        np.testing.assert_allclose(states[0], mcmc.get_samples()["w"], atol=mcmc.released.grid)
    else:
        assert mcmc.curator.averages.unsafe_value().shape == (2,)
        assert "states" not in dir(mcmc.curator)
    plain = driver()
    plain.run(X=X, y=y)
    with pytest.raises(ReleaseError, match="curator=True"):
        _ = plain.curator
