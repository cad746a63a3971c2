"""The predicted error of every coefficient, in its own unit."""

import numpy as np
import pytest

import private_mcmc as pmc
from tests.examples_of_models import logistic

ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
TARGET = pmc.Target(epsilon=1.0, delta=1e-6)


def planned(**options):
    return pmc.plan(logistic, ROWS, TARGET, n=5_000, guarantee="run", **options)


@pytest.mark.long
def test_errors_of_coefficients_are_the_plans_error_in_their_own_units():
    found = planned().prediction
    assert [one.name for one in found.coefficients] == ["w[0]", "w[1]"]
    in_sds = [one.error / one.sd for one in found.coefficients]
    # Their sds are those of 500 draws.
    assert np.sqrt(np.mean(np.square(in_sds))) == pytest.approx(found.rms, rel=0.15)
    other = planned(coefficients=lambda sites: {"per cent": 100 * sites["w"][:, 1]}).prediction
    (one,) = other.coefficients
    assert one.name == "per cent" and other.rms == found.rms
    assert one.error == pytest.approx(100 * found.coefficients[1].error, rel=1e-6)
    assert pmc.Prediction.from_record(found.to_record()) == found and found.low < found.rms < found.high


@pytest.mark.long
def test_what_fills_a_ball_is_said_where_sds_depend_on_it():
    assert "of centred ones: Ball" in planned()._repr_html_()
