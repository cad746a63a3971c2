"""The models to copy: each is read, and gets the verdict that its paragraph speaks of."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from numpyro import handlers

from private_mcmc import models
from private_mcmc.domains import Rows
from private_mcmc.preflight import preflight
from private_mcmc.target import Target


@dataclass(frozen=True)
class Case:
    """A model of the package, its rows, and what preflight says of it at (3, 1e-6) with 1,000 rows."""

    name: str
    rows: Rows
    verdict: str
    gdp: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


CASES = (
    Case("logistic", models.logistic_rows(3), "not private", 2 * 1.0 * 2.0),
    Case("linear", models.linear_rows(3), "unknown", 2 * 0.5 * 1.0, {"clip": 0.5}),
    Case("robust", models.linear_rows(3), "not private"),
    Case("poisson", models.counts_rows(3), "unknown", 2 * 0.5 * 1.0, {"clip": 0.5}),
    Case("negative_binomial", models.counts_rows(3), "unknown", 2 * 0.5 * 1.0, {"clip": 0.5}),
    Case("softmax", models.softmax_rows(3, 3), "unknown", 2 * 2**0.5),
    Case("ordinal", models.ordinal_rows(3), "not private", 2.0),
    Case("groups", models.groups_rows(3, 8), "not private"),
    Case("item_response", models.item_response_rows(20, 5), "unknown", 2 * 0.3 * 2**0.5, {"temper": 0.3}),
    Case("ab_test", models.ab_test_rows(), "not private", 2 * 2**0.5),
    Case("bounded_mean", models.bounded_mean_rows(), "private"),
    Case("mixture", models.bounded_mean_rows(), "unknown"),
    Case("survival", models.survival_rows(3), "unknown", 2 * 0.5 * 1.0, {"clip": 0.5}),
    Case("weibull_survival", models.survival_rows(3), "unknown", None, {"clip": 0.5}),
    Case("hazards", models.hazards_rows(3), "unknown"),
    Case("spline", models.spline_rows(), "unknown"),
    Case("network", models.network_rows(3), "unknown"),
)


@pytest.mark.some(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_and_the_certificate_are_those_of_the_paragraph(case: Case) -> None:
    report = preflight(getattr(models, case.name), case.rows, Target(3.0, 1e-6), n=1000, **case.options)
    assert report.verdict == case.verdict
    if case.gdp is not None:
        assert report.certificates[0].gdp == pytest.approx(case.gdp, rel=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_model_gives_rows_of_its_domain_a_finite_density(case: Case) -> None:
    with jax.enable_x64(True), handlers.seed(rng_seed=0):
        trace = handlers.trace(getattr(models, case.name)).get_trace(**case.rows.synthetic(0, 5))
        for site in trace.values():
            if site["type"] == "sample":
                assert bool(jnp.all(jnp.isfinite(site["fn"].log_prob(site["value"]))))


def test_every_model_is_listed_with_its_case() -> None:
    listed = {
        name
        for name in vars(models)
        if inspect.isfunction(getattr(models, name)) and not name.endswith("_rows")
    }
    assert listed == {case.name for case in CASES}
