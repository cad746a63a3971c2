"""The predicted error of every coefficient, in its own unit, and limits on it."""

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.cli.common import read_max_error
from private_mcmc.planning.coefficients import check_max_error, excess
from private_mcmc.planning.conclusion import Expected
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
    assert pmc.Prediction.from_record(found.to_record()) == found


@pytest.mark.long
def test_a_plan_that_errs_more_in_one_coefficient_is_refused():
    first = planned().prediction.coefficients[0]
    planned(max_error={"w": 10 * max(one.error for one in planned().prediction.coefficients)})
    with pytest.raises(pmc.NotPrivate, match=r"error of w\[0\] is .*above max_error=.*about [\d,]+ rows"):
        planned(max_error={"w[0]": first.error / 2, "w[1]": 1e3})


def test_a_limit_is_of_a_coefficient_of_all_levels_or_of_the_whole():
    each = [Expected(name, error, 1.0) for name, error in (("age", 0.02), ("sex[m]", 0.3), ("sex[x]", 0.5))]
    found = pmc.Prediction(2.0, 1.0, 1.0, 0.0, coefficients=tuple(each))
    assert excess(found, 4.0) == 0.5
    assert excess(found, {"sex": 0.25}) == 2.0 and excess(found, {"age": 0.02, "sex[m]": 0.6}) == 1.0
    names = [one.name for one in each]
    for wrong, words in (
        ({"wage": 1.0}, "there is no coefficient 'wage'"),
        ({"age": -1.0}, "max_error of 'age'"),
    ):
        with pytest.raises(pmc.DeclarationError, match=words):
            check_max_error(wrong, names)
    with pytest.raises(pmc.DeclarationError, match="too many"):
        check_max_error({"age": 1.0}, [])


@pytest.mark.long
def test_what_fills_a_ball_is_said_where_sds_depend_on_it():
    assert "sds of centred ones are smaller" in planned()._repr_html_()


def test_a_limit_is_written_as_a_number_or_by_name():
    assert read_max_error(["0.5"]) == 0.5 and read_max_error([]) is None
    assert read_max_error(["age=0.01", "sex[male]=0.2"]) == {"age": 0.01, "sex[male]": 0.2}
    for wrong in (["small"], ["age=small"], ["0.5", "age=1"], ["age:0.1"]):
        with pytest.raises(pmc.DeclarationError, match="COEFFICIENT=NUMBER"):
            read_max_error(wrong)
