"""Women who answered a magazine's survey on extramarital affairs (Fair 1978)."""

from __future__ import annotations

import numpy as np

from benchmarks.datasets.models import Regression
from benchmarks.datasets.record import Column, Dataset, from_table
from private_mcmc import Binary

_CODES = "the questionnaire's codes"
_COLUMNS = (
    Column("rate_marriage", 1.0, 5.0, _CODES),
    Column("age", 17.5, 42.0, _CODES),
    Column("yrs_married", 0.5, 23.0, _CODES),
    Column("children", 0.0, 5.5, _CODES),
    Column("religious", 1.0, 4.0, _CODES),
    Column("educ", 9.0, 20.0, _CODES),
    Column("occupation", 1.0, 6.0, _CODES),
    Column("occupation_husb", 1.0, 6.0, _CODES),
)


def affairs() -> Dataset:
    """Did she report any time spent in an affair?"""
    import statsmodels.api as sm

    raw = sm.datasets.fair.load_pandas().data
    return from_table(
        {column.name: raw[column.name] for column in _COLUMNS},
        name="affairs",
        unit="a married woman who answered the survey",
        columns=_COLUMNS,
        y=(raw["affairs"].to_numpy(float) > 0).astype(np.int64),
        regression=Regression("logistic", Binary()),
        source="statsmodels, fair; Fair (1978)",
    )
