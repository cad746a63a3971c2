"""The RAND health insurance experiment: visits to a doctor."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.datasets.models import Regression
from benchmarks.datasets.record import Column, Dataset, design, indicator
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
_UNIT = "a person-year of the experiment (the data carry no person identifier)"
_SOURCE = "statsmodels, randhie; Cameron and Trivedi (2005), RAND"


def any_visit() -> Dataset:
    """Did the person see a doctor that year?"""
    table = _table()
    return Dataset(
        name="any_visit",
        unit=_UNIT,
        columns=_COLUMNS,
        X=design(table, _COLUMNS),
        y=(table["mdvis"] > 0).astype(np.int64),
        regression=Regression("logistic", Binary()),
        source=_SOURCE,
    )


def visits() -> Dataset:
    """Number of visits that year, at most 20, by Poisson regression."""
    table = _table()
    return Dataset(
        name="visits",
        unit=_UNIT,
        columns=_COLUMNS,
        X=design(table, _COLUMNS),
        y=np.clip(table["mdvis"], 0, _MOST_VISITS).astype(np.int64),
        regression=Regression("poisson", Counts(_MOST_VISITS)),
        source=_SOURCE,
    )


def _table() -> dict[str, np.ndarray]:
    import statsmodels.api as sm

    raw = sm.datasets.randhie.load_pandas().data
    return {name: raw[name].to_numpy(float) for name in raw.columns}
