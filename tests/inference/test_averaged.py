"""Two estimates from one run's releases: where their average is, and how wide its draws are."""

import numpy as np
import pytest

from private_mcmc.inference.posterior import GivenReleases, averaged
from private_mcmc.planning import Conclusion, Prediction

SDS = np.array([1.0, 0.1, 20.0])


def conclusion(centre: np.ndarray, sds: np.ndarray, located: bool = True, claims: float = 5.0) -> Conclusion:
    normal = np.random.default_rng(1).standard_normal((400, 3))
    draws = centre + (normal - normal.mean(axis=0)) * sds
    return Conclusion(draws, Prediction(claims, 0.0, claims, 0.0), located=located)


@pytest.fixture(scope="module")
def given() -> GivenReleases:
    random = np.random.default_rng(0)
    turned = np.linalg.qr(random.standard_normal((3, 3)))[0]
    draws = random.standard_gamma(4.0, (4, 500, 3)) @ (turned * [0.5, 1.0, 2.0]) * SDS
    return GivenReleases(draws, SDS, dispersion=1.3, remarks=("said",))


def moments(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    flat = draws.reshape(-1, 3)
    return flat.mean(axis=0), np.cov(flat.T)


def test_draws_are_around_both_means_and_no_narrower_than_either(given):
    mean, covariance = moments(given.draws)
    path = conclusion(mean + 0.3 * SDS, SDS * [0.5, 4.0, 1.0])
    found = averaged(path, given)
    centre, wide = moments(found.draws)
    apart = path.draws.mean(axis=0) - mean
    # The coin and the draws are independent: five standard errors.
    np.testing.assert_allclose(centre, mean + apart / 2, atol=5 * np.abs(apart).max() / 2000**0.5)
    for narrower in (covariance, np.cov(path.draws.T)):
        # In units of SDS, so that no coordinate's rounding hides another's.
        assert np.linalg.eigvalsh((wide - narrower) / np.outer(SDS, SDS)).min() > -0.02
    assert (found.sds is given.sds, found.dispersion, found.remarks) == (True, 1.3, ("said",))


def test_the_error_to_expect_is_between_the_claims_and_no_less_than_the_paths(given):
    mean, _ = moments(given.draws)
    own = given.error
    less, more = (averaged(conclusion(mean, SDS, claims=own * by), given).error for by in (0.5, 2.0))
    assert 0.5 * own < less < own
    assert more == pytest.approx(2.0 * own)


def test_of_a_path_that_is_wider_than_its_claimed_error_the_shape_is_taken(given):
    mean, covariance = moments(given.draws)
    wide = conclusion(mean, SDS * [9.0, 90.0, 9.0], claims=3.0)
    share = (1 + 3.75**2) / np.mean(np.diag(np.cov(wide.draws.T)) / SDS**2)
    path = np.cov(wide.draws.T) * share
    found = moments(averaged(wide, given).draws)[1]
    for narrower in (covariance, path):
        assert np.linalg.eigvalsh((found - narrower) / np.outer(SDS, SDS)).min() > -0.02
    # Less than both together.
    assert np.linalg.eigvalsh((covariance + path - found) / np.outer(SDS, SDS)).min() > 0.0


def test_where_the_path_claims_less_everywhere_draws_are_only_moved(given):
    mean, _ = moments(given.draws)
    path = conclusion(mean + 0.01 * SDS, 0.05 * SDS)
    moved = averaged(path, given).draws - given.draws
    apart = path.draws.mean(axis=0) - mean
    coins = moved @ np.linalg.pinv(apart[None])
    np.testing.assert_allclose(moved, coins * apart, atol=1e-9)
    # Half of every chain, so that chains stay alike.
    np.testing.assert_allclose(coins.mean(axis=1), 0.5, atol=1e-9)


def test_estimates_that_are_far_apart_are_not_mixed(given):
    mean, covariance = moments(given.draws)
    far = mean + 3.0 * np.sqrt(np.diag(covariance))
    assert averaged(conclusion(far, SDS), given) is given


def test_only_means_that_the_curvature_implies_are_taken(given):
    mean, _ = moments(given.draws)
    assert averaged(conclusion(mean, SDS, located=False), given) is given
    assert averaged(None, given) is given


def test_agreement_does_not_depend_on_units(given):
    mean, _ = moments(given.draws)
    units = np.array([2.0, -300.0, 0.01])
    for far in (0.1, 9.0):
        path = conclusion(mean + far * SDS, 1.5 * SDS, claims=1.0)
        changed = Conclusion(path.draws * units, path.prediction, located=True)
        expected = averaged(path, given).draws * units
        in_units = given._replace(draws=given.draws * units, sds=given.sds * np.abs(units))
        found = averaged(changed, in_units).draws
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("width", [0.5, 3.0])
def test_one_parameter(width):
    draws = np.random.default_rng(2).standard_normal((4, 200, 1))
    path = np.random.default_rng(3).normal(0.1, width, (300, 1))
    of_path = Conclusion(path, Prediction(5.0, 0.0, 5.0, 0.0), located=True)
    found = averaged(of_path, GivenReleases(draws, np.ones(1))).draws
    assert found.mean() == pytest.approx((path.mean() + draws.mean()) / 2)
    assert found.std(ddof=1) == pytest.approx(max(draws.std(ddof=1), path.std(ddof=1)), rel=0.01)


def test_draws_without_a_covariance_stay_as_they_are():
    still = GivenReleases(np.ones((4, 50, 2)), np.ones(2))
    path = np.random.default_rng(3).normal(1.0, 1.0, (300, 2))
    assert averaged(Conclusion(path, Prediction(0.3, 0.0, 0.3, 0.0), located=True), still) is still
