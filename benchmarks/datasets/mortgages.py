"""Home ownership of men around the end of the mid-century GI bills (Fetter 2013)."""

from __future__ import annotations

import numpy as np

from benchmarks.datasets.models import Regression
from benchmarks.datasets.record import Column, Dataset, from_table, indicator
from private_mcmc import Binary

_COLUMNS = (
    indicator("nonwhite"),
    indicator("veteran"),
    Column("birth_quarter", -60.0, 60.0, "men born within fifteen years of the cut-off, in quarters"),
    *(indicator(f"quarter_{quarter}") for quarter in (2, 3, 4)),
)


def mortgages() -> Dataset:
    """Does the man own a home? Race, veteran status, birth quarter before or after the cut-off, season."""
    import causaldata

    raw = causaldata.mortgages.load_pandas().data
    table = {
        "nonwhite": raw["nonwhite"].to_numpy(float),
        "veteran": raw["vet_wwko"].to_numpy(float),
        "birth_quarter": raw["qob_minus_kw"].to_numpy(float),
        **{f"quarter_{q}": (raw["qob"] == q).to_numpy(float) for q in (2, 3, 4)},
    }
    return from_table(
        table,
        name="mortgages",
        unit="a man of the US census",
        columns=_COLUMNS,
        y=raw["home_ownership"].to_numpy(np.int64),
        regression=Regression("logistic", Binary()),
        source="causaldata, mortgages; Fetter (2013)",
    )
