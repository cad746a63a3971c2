"""Public rows that are the private table itself are refused, by what they are and not by their values."""

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.data.table import check_apart


def test_the_private_table_is_not_taken_for_public_rows(tmp_path):
    table, path, link = {"y": np.arange(3)}, tmp_path / "people.csv", tmp_path / "census.csv"
    path.write_text("y\n1\n")
    link.symlink_to(path)
    for private, public in ((table, table), (path, str(path)), (str(link), path)):
        with pytest.raises(pmc.DeclarationError, match="private table itself"):
            check_apart(private, public)
    schema = {"fields": [{"name": "y", "type": "boolean"}]}
    with pytest.raises(pmc.DeclarationError, match="private table itself"):
        pmc.fit(table, pmc.Schema.from_dict(schema), "y ~ 1", epsilon=1.0, public_rows=table)


def test_equal_values_are_no_reason(tmp_path):
    for name in ("people.csv", "census.csv"):
        (tmp_path / name).write_text("y\n1\n")
    check_apart(tmp_path / "people.csv", tmp_path / "census.csv")
    check_apart({"y": np.arange(3)}, {"y": np.arange(3)})
    check_apart(tmp_path / "people.csv", tmp_path / "gone.csv")
    check_apart({"y": np.arange(3)}, None)
