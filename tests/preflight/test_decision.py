"""The verdicts of models with known answers, and the numbers of the advice that would change them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from private_mcmc import accounting
from private_mcmc.errors import DeclarationError
from private_mcmc.model import read
from private_mcmc.models import groups, groups_rows
from private_mcmc.preflight import preflight
from private_mcmc.preflight.refutation import lines
from private_mcmc.target import Target
from tests.examples_of_models import logistic
from tests.preflight import zoo_small as small
from tests.schedules import schedule
from tests.zoo import ZOO

TARGET = Target(3.0, 1e-6)
ADULT = {"n": 32_561}
RUN = schedule(num_rows=32_561, dim=9, step_size=1e-3, num_steps=1000, release="path")


def advised(report, change: str) -> float:
    (value,) = [item.value for item in report.advice if item.change == change]
    return value


def asked(**options):
    return preflight(logistic, small.ADULT_ROWS, TARGET, **{**ADULT, **options})


@pytest.fixture(scope="module")
def adult():
    return asked()


@pytest.mark.long
def test_the_designs_example_is_four_gdp_and_refuted(adult) -> None:
    assert adult.verdict == "not private"
    assert adult.certificates[0].gdp == pytest.approx(4.0)
    assert adult.epsilon == pytest.approx(26.36, abs=0.01)
    assert advised(adult, "temper") == 0.161


def test_the_refuting_event_has_the_stated_probabilities(adult) -> None:
    """Recomputed by SciPy from the data sets and the event alone."""
    found = adult.refutation
    ((low, high),) = found.violation.intervals

    def density(data_set):
        ((_, inert), (row, times)) = data_set
        slope = row["X"][0] * (1 if row["y"] == 1 else -1)
        assert (inert, times) == (32_560, 1)
        return lambda t: math.exp(-t * t / 8) * expit(slope * t)

    for data_set, stated in ((found.first, found.violation.p), (found.second, found.violation.q)):
        f = density(data_set)
        total, part = quad(f, -60, 60, points=[0])[0], quad(f, max(low, -60), min(high, 60))[0]
        assert part / total == pytest.approx(stated, rel=1e-7)
    assert found.violation.p_low > math.exp(TARGET.epsilon) * found.violation.q_high + TARGET.delta


def test_the_refuting_data_sets_are_adjacent_and_in_the_domain(adult) -> None:
    first, second = adult.refutation.first, adult.refutation.second
    assert sum(times for _, times in first) == sum(times for _, times in second) == 32_561

    def counts(data_set):
        return {(tuple(np.ravel(row["X"])), row["y"]): times for row, times in data_set}

    one, other = counts(first), counts(second)
    moved = sum(abs(one.get(key, 0) - other.get(key, 0)) for key in one.keys() | other.keys())
    assert moved == 2
    for row, _ in (*first, *second):
        assert np.linalg.norm(row["X"]) <= 1.0
        assert row["y"] in (0, 1)


def test_of_directions_that_push_alike_those_with_several_rows_are_searched() -> None:
    """Two directions with one row each were taken for the worst: groups were refuted no more."""
    found = [line.rows for line in lines(read(groups, groups_rows(3, 8), n=50))]
    assert found and all(len(rows) > 1 for rows in found)


@pytest.mark.some(1)
@pytest.mark.parametrize(("adjacency", "gdp"), [("replace_one", 4.0), ("zero_out", 2.0), ("add_remove", 2.0)])
def test_the_adjacency_decides_the_sensitivity(adjacency: str, gdp: float) -> None:
    report = preflight(logistic, small.ADULT_ROWS, Target(3.0, 1e-6, adjacency), **ADULT)
    assert report.certificates[0].gdp == pytest.approx(gdp)
    assert report.certificates[0].adjacency == adjacency
    sizes = {sum(times for _, times in each) for each in (report.refutation.first, report.refutation.second)}
    assert max(sizes) <= ADULT["n"]
    assert (len(sizes) == 1) == (adjacency == "replace_one")


@pytest.mark.long
def test_normal_rows_need_a_clip_and_then_speak_of_the_huberised_posterior() -> None:
    plain = preflight(small.linear, small.LINEAR_ROWS, TARGET, n=100)
    assert plain.verdict == "not private"
    clipped = preflight(small.linear, small.LINEAR_ROWS, TARGET, n=100, clip=advised(plain, "clip"))
    assert clipped.verdict == "private"
    assert clipped.subject == "Huberised posterior"
    assert "Huberised" in " ".join(clipped.reasons)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: asked(temper=0.0), "temper"),
        (lambda: asked(temper=math.nan), "temper"),
        (lambda: asked(temper="1"), "temper='1'"),
        (lambda: asked(clip="1"), "clip='1'"),
        (lambda: asked(n=4.5), "n=4.5: must be a whole number"),
        (lambda: asked(n=True), "n=True"),
        (lambda: asked(clip=-1.0), "clip"),
        (lambda: Target("3", 1e-6), "epsilon='3'"),
        (lambda: Target(3.0, None), "delta=None"),
        (lambda: replace(RUN, num_steps=2.5), "num_steps=2.5"),
        (lambda: replace(RUN, clip="1"), "clip='1'"),
        (lambda: replace(RUN, step_size="0.1"), "step_size"),
    ],
)
def test_values_of_another_type_or_out_of_range_are_refused_in_words(make, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        make()


def test_numbers_of_numpy_are_numbers() -> None:
    assert Target(np.float32(3.0), np.float64(1e-6)).epsilon == 3.0
    assert replace(RUN, num_steps=np.int64(5), clip=np.float64(1.0)).num_steps == 5


@pytest.mark.long
def test_a_model_without_any_bound_is_told_what_its_run_could_pay_for() -> None:
    report = preflight(small.poisson, small.POISSON_ROWS, TARGET, n=100)
    time = advised(report, "time")
    # γT(2C)²/2 ≤ m², rounded down, with C = 1.
    assert time == pytest.approx(accounting.gdp.budget(3.0, 1e-6) ** 2 / 2, rel=0.06)
    assert "C²" in report.advice[-1].text


@pytest.mark.long
def test_the_report_is_plain_data_and_reads_in_every_form(adult, tmp_path) -> None:
    record = json.loads(json.dumps(adult.to_dict(), allow_nan=False))
    keys = ("verdict", "epsilon", "delta", "certificates", "refutation", "structure", "advice")
    assert all(key in record for key in keys)
    assert record["verdict"] == "not private"
    page = adult.to_html(tmp_path / "report.html")
    assert "not private" in page
    # The ratio of the two posteriors is e^{∓t}: it is e^ε at ∓3.
    assert adult.refutation.event == "w[0] < −3" in adult._repr_html_().replace("&lt;", "<")


@pytest.mark.slow
def test_clipped_rows_without_a_posterior_are_told_that_only_their_run_has_a_statement() -> None:
    (network,) = (entry for entry in ZOO if entry.name == "network")
    report = preflight(network.model, network.rows, network.target, n=network.n, clip=1.0)
    assert (report.verdict, report.subject) == ("unknown", "no posterior")
    assert report.certificates == ()
    assert "have no posterior" in report.reasons[0]
    # No bound of the gradient is proved, so no clip is idle: the run alone is left.
    assert {item.change for item in report.advice} == {"time"}
