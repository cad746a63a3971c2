"""Logistic regressions of a folder of published posteriors, for whoever has it: see ``--cases``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.datasets.models import Regression
from benchmarks.datasets.record import Column, Dataset, from_table
from private_mcmc import Binary

_WELLS = (
    Column("dist", 0.0, 400.0, "metres to the nearest safe well; a village is that wide"),
    Column("arsenic", 0.0, 10.0, "hundreds of micrograms per litre, the test kit's scale"),
)
_NES = (Column("income", 1.0, 5.0, "the survey's five classes"),)
_FILES = {
    "wells": ("wells_data-wells_dist100ars_model.json", _WELLS, "switched"),
    "nes": ("nes_logit_data-nes_logit_model.json", _NES, "vote"),
}


def load_case(name: str, folder: Path) -> Dataset:
    """``"wells"`` or ``"nes"`` from posteriordb-like files; their flat prior becomes a wide, proper one."""
    file, columns, outcome = _FILES[name]
    record = json.loads((folder / file).read_text())
    data = {key: np.asarray(value) for key, value in record["data"].items() if isinstance(value, list)}
    return from_table(
        data,
        name=name,
        unit=f"a {record['row_unit']}",
        columns=columns,
        y=data[outcome].astype(np.int64),
        regression=Regression("logistic", Binary()),
        source=record["source"],
    )


CASES = tuple(_FILES)
