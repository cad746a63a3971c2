"""The RAND health insurance experiment: visits to a doctor."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from benchmarks.datasets.models import Regression
from benchmarks.datasets.record import Column, Dataset, from_table, indicator
from private_mcmc import Binary, Counts

_COLUMNS = (
    Column("lncoins", 0.0, math.log(101.0), "log(coinsurance + 1), a rate between 0 and 100"),
    indicator("idp"),
    Column("lpi", 0.0, math.log(2000.0), "log of a yearly payment; outlays were capped at 1,000 dollars"),
    Column("fmde", 0.0, math.log(4000.0), "log of at most 1,000 dollars over a rate of at least a quarter"),
    Column("physlm", 0.0, 1.0, "a probability or an indicator"),
    Column("disea", 0.0, 60.0, "an index of chronic diseases, about one to sixty"),
    *(indicator(name) for name in ("hlthg", "hlthf", "hlthp")),
)
_MOST_VISITS = 20


def any_visit() -> Dataset:
    """Did the person see a doctor that year?"""
    return _person_years(
        "any_visit", lambda seen: (seen > 0).astype(np.int64), Regression("logistic", Binary())
    )


def visits() -> Dataset:
    """Number of visits that year, at most 20, by Poisson regression."""
    return _person_years(
        "visits",
        lambda seen: np.clip(seen, 0, _MOST_VISITS).astype(np.int64),
        Regression("poisson", Counts(_MOST_VISITS)),
    )


def _person_years(name: str, outcome: Callable[[np.ndarray], np.ndarray], regression: Regression) -> Dataset:
    import statsmodels.api as sm

    raw = sm.datasets.randhie.load_pandas().data
    return from_table(
        {column: raw[column].to_numpy(float) for column in raw.columns},
        name=name,
        unit="a person-year of the experiment (the data carry no person identifier)",
        columns=_COLUMNS,
        y=outcome(raw["mdvis"].to_numpy(float)),
        regression=regression,
        source="statsmodels, randhie; Cameron and Trivedi (2005), RAND",
    )
