import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from benchmarks.datasets import Dataset, synthetic
from benchmarks.datasets.models import Regression
from benchmarks.peers import Budget, DoesNotApply, Method, Unavailable, methods
from benchmarks.peers.external import D3P, DiffPrivLib
from benchmarks.peers.limits import Oracle, SufficientStatistics
from benchmarks.peers.method import seeds
from benchmarks.peers.noisy_gradients import NoisyGradients
from benchmarks.peers.nonprivate import Laplace
from benchmarks.peers.objective_perturbation import ObjectivePerturbation, delta_of, gaussian_noise
from benchmarks.peers.one_sample import OneSample
from benchmarks.peers.ours import Ours, Simulated
from benchmarks.peers.output_perturbation import OutputPerturbation
from benchmarks.utility_metrics import score
from benchmarks.utility_reference import Reference, reference
from private_mcmc import Box, Counts
from private_mcmc.accounting.curves import gdp

ENVIRONMENTS = Path("build/peers")
PLENTY = Budget(1e4, 1e-6)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return synthetic(n=1_500)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("references")


@pytest.fixture(scope="module")
def exact(dataset: Dataset, cache: Path) -> Reference:
    return reference(dataset, cache=cache)


@pytest.mark.long
def test_reference_agrees_with_quadrature(cache: Path) -> None:
    data = synthetic(n=200)
    one = Dataset("one", "", (), data.X[:, :1], data.y, data.regression, "")
    found = reference(one, cache=cache)
    x, positives = data.X[0, 0], data.y.sum()

    def density(w: float) -> float:
        eta = x * w
        return math.exp(positives * eta - 200 * np.logaddexp(0, eta) - w * w / 200 + 140)

    total, first, second = (quad(lambda w, k=k: w**k * density(w), -15, 15, points=[0])[0] for k in range(3))
    mean = first / total
    sd = math.sqrt(second / total - mean**2)
    # Thousands of effective draws: errors of a few hundredths of a sd would be five standard errors.
    assert found.mean[0] == pytest.approx(mean, abs=0.07 * sd)
    assert found.sd[0] == pytest.approx(sd, rel=0.07)
    again = reference(one, cache=cache)
    np.testing.assert_array_equal(again.draws, found.draws)


@pytest.mark.long
def test_laplace_is_near_the_posterior(dataset: Dataset, cache: Path, exact: Reference) -> None:
    found = score(Laplace(cache).run(dataset, PLENTY, 1).draws[0], exact)
    assert found.rms < 0.3
    assert found.sd_ratio == pytest.approx(1.0, abs=0.1)


@pytest.mark.long
def test_output_perturbation_has_the_noise_its_sensitivity_asks_for(dataset: Dataset, cache: Path) -> None:
    budget = Budget(1.0, 1e-6)
    made = OutputPerturbation(cache).run(dataset, budget, 200)
    # Rows of norm one: replacing one moves the gradient by at most 2; the prior's precision is 1/100.
    expected = 2.0 * 100.0 / gdp.budget(1.0, 1e-6)
    assert made.facts["noise sd"] == pytest.approx(expected, rel=1e-9)
    noise = np.concatenate(made.draws) - reference(dataset, cache=cache).mean
    assert noise.std() == pytest.approx(expected, rel=0.1)


@pytest.mark.long
def test_one_sample_is_tempered_to_the_budget(dataset: Dataset, cache: Path) -> None:
    budget = Budget(3.0, 1e-6)
    made = OneSample(cache).run(dataset, budget, 3)
    assert [draw.shape for draw in made.draws] == [(1, dataset.dim)] * 3
    # The tempered posterior is (2 w τ)-GDP; preflight rounds the temper down to two digits.
    largest = gdp.budget(3.0, 1e-6) / (2.0 * 10.0)
    assert 0.9 * largest <= float(made.facts["temper"]) <= largest


@pytest.mark.long
def test_objective_perturbation_finds_the_mode_when_its_budget_is_plenty(
    dataset: Dataset, exact: Reference
) -> None:
    found = np.concatenate(ObjectivePerturbation().run(dataset, PLENTY, 2).draws)
    # The noise moves a coordinate by less than 0.03 of that sd: a failure is seven noise sds off.
    np.testing.assert_allclose(found, np.stack([exact.mode] * 2), atol=0.2 * exact.sd.min())


@pytest.mark.parametrize(("noise_sd", "ridge"), [(3.0, 0.5), (0.2, 1.0)])
def test_objective_perturbation_delta_is_its_integral(noise_sd: float, ridge: float) -> None:
    a, shift = 1.0 / noise_sd, math.log1p(0.25 / ridge)

    def excess(z: float) -> float:
        loss = shift + z * a + a * a / 2
        return 2 * norm.pdf(z) * max(-math.expm1(1.0 - loss), 0.0)

    kink = max((1.0 - shift - a * a / 2) / a, 0.0)
    exact = quad(excess, kink, kink + 12.0, epsabs=1e-13)[0]
    assert delta_of(noise_sd, 1.0, ridge) == pytest.approx(exact, rel=1e-5, abs=1e-12)


def test_objective_perturbation_meets_its_budget() -> None:
    budget = Budget(1.0, 1e-6)
    assert delta_of(gaussian_noise(budget, 0.5), 1.0, 0.5) == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.long
def test_a_count_model_has_no_bounded_gradient(dataset: Dataset, cache: Path) -> None:
    counts = Dataset(
        "counts", "", dataset.columns, dataset.X, dataset.y, Regression("poisson", Counts(5)), ""
    )
    refusing: tuple[Method, ...] = (ObjectivePerturbation(), OneSample(cache), OutputPerturbation(cache))
    for method in refusing:
        with pytest.raises(DoesNotApply):
            method.run(counts, Budget(1.0, 1e-6), 1)


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("optax") is None, reason="optax comes with the bench extra")
def test_noisy_gradients_converge_when_their_budget_is_plenty(dataset: Dataset, exact: Reference) -> None:
    draws = NoisyGradients().run(dataset, PLENTY, 2).draws
    assert all(score(draw, exact).rms < 1.0 for draw in draws)


@pytest.mark.long
def test_simulations_have_the_errors_of_runs(dataset: Dataset, exact: Reference) -> None:
    """Mean square errors of 6 runs of 8 parameters each: a ratio of 4 is beyond four standard errors."""
    budget = Budget(30.0, 1e-6)
    runs, simulations = (
        [score(draws, exact) for draws in method.run(dataset, budget, 6).draws]
        for method in (Ours("replace_one"), Simulated("replace_one"))
    )
    squares = [np.mean([found.rms**2 for found in each]) for each in (runs, simulations)]
    assert 1 / 4 < squares[0] / squares[1] < 4
    widths = [np.mean([found.sd_ratio for found in each if found.sd_ratio]) for each in (runs, simulations)]
    assert widths[0] == pytest.approx(widths[1], rel=0.2)


def test_a_missing_environment_is_reported_by_name(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="d3p"):
        D3P(tmp_path).run(dataset, Budget(1.0, 1e-6), 1)


@pytest.mark.parametrize(
    "peer",
    [
        DiffPrivLib(ENVIRONMENTS),
        pytest.param(D3P(ENVIRONMENTS, steps=20, batch_size=50), marks=pytest.mark.long),
    ],
    ids=lambda peer: peer.name,
)
def test_workers_answer_with_one_array_per_run(dataset: Dataset, peer: Method) -> None:
    try:
        made = peer.run(dataset, Budget(1.0, 1e-6), 2)
    except Unavailable as missing:
        pytest.skip(str(missing))
    assert len(made.draws) == 2
    assert all(draws.ndim == 2 and draws.shape[1] == dataset.dim for draws in made.draws)
    assert not np.array_equal(made.draws[0], made.draws[1])


def test_every_method_names_its_adjacency(tmp_path: Path) -> None:
    known = methods(tmp_path, tmp_path)
    assert {name for name, method in known.items() if method.adjacency is None} == {"NUTS", "Laplace"}
    assert all(method.about for method in known.values())


@pytest.mark.long
def test_the_oracle_errs_as_it_expects_and_less_where_its_budget_is_larger(
    dataset: Dataset, cache: Path, exact: Reference
) -> None:
    expected = []
    for epsilon in (1.0, 10.0):
        made = Oracle(cache).run(dataset, Budget(epsilon, 1e-6), 300)
        seen = np.sqrt(np.mean([score(draws, exact).rms ** 2 for draws in made.draws]))
        expected.append(made.facts["expected rms"])
        assert seen == pytest.approx(expected[-1], rel=0.15)
    assert expected[1] < 0.5 * expected[0]


@pytest.mark.long
def test_sufficient_statistics_without_noise_are_the_posterior_mean(dataset: Dataset, cache: Path) -> None:
    random = np.random.default_rng(2)
    y = np.clip(dataset.X @ random.normal(size=dataset.dim) + 0.1 * random.normal(size=dataset.n), -2.0, 2.0)
    linear = Dataset("line", "", (), dataset.X, y, Regression("linear", Box(-2.0, 2.0), noise_sd=0.1), "")
    made = SufficientStatistics(cache).run(linear, Budget(1e9, 1e-6), 2)
    found = reference(linear, cache=cache)
    np.testing.assert_allclose(made.draws[0][0], found.mean, atol=0.2 * float(found.sd.max()))
    with pytest.raises(DoesNotApply):
        SufficientStatistics(cache).run(dataset, PLENTY, 1)


def test_runs_have_seeds_of_their_own_whoever_makes_them_when(dataset: Dataset, cache: Path) -> None:
    oracle, simulated = Oracle(cache), Simulated("replace_one")
    all_four = seeds(oracle, dataset, Budget(1.0, 1e-6), 4)
    later = seeds(oracle, dataset, Budget(1.0, 1e-6, made=2), 2)
    assert len(set(all_four)) == 4 and all_four[2:] == later
    assert not set(all_four) & set(seeds(oracle, dataset, Budget(3.0, 1e-6), 4))
    assert not set(all_four) & set(seeds(simulated, dataset, Budget(1.0, 1e-6), 4))


@pytest.mark.long
def test_a_repeated_run_is_the_same(dataset: Dataset, cache: Path) -> None:
    methods = Oracle(cache), ObjectivePerturbation(), OutputPerturbation(cache)
    for method in methods:
        first, second = (method.run(dataset, Budget(1.0, 1e-6), 2).draws for _ in range(2))
        np.testing.assert_array_equal(np.concatenate(first), np.concatenate(second))
