"""Several dossiers of one study as one page: what they cost together, and what must not be added."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

import private_mcmc as pmc
from private_mcmc import Study
from private_mcmc.cli import app
from private_mcmc.data.fields import KEY
from private_mcmc.dossier import new_dossier
from private_mcmc.dossier.publication import together
from tests.dossier.studies import books_in, statement_of, study_of


def another(epsilon: float, adjacency: str = "replace_one", **changes: object) -> Study:
    """A study whose mechanisms are its own."""
    target = pmc.Target(epsilon, 1e-6, adjacency=adjacency)
    statement = statement_of(target)
    parts = tuple(part.of(f"{part.mechanism} of {epsilon}") for part in statement.parts)
    return study_of(target=target, statement=replace(statement, parts=parts).to_dict(), **changes)


def test_squared_prices_add_up_in_any_order() -> None:
    records = [another(epsilon) for epsilon in (1.0, 0.3, 0.2)]
    whole = together(records)
    squares = sum(record.price.gdp**2 for record in records)
    assert squares <= whole.gdp**2 <= squares * (1 + 1e-12)
    assert together(records[::-1]).gdp == whole.gdp
    assert whole.verify()


@pytest.mark.filterwarnings("ignore")
def test_a_check_of_a_fit_is_said_to_make_intervals_of_a_chosen_model_too_narrow(tmp_path) -> None:
    rng = np.random.default_rng(0)
    rows = {
        "age": rng.uniform(20, 80, 1000),
        "sex": rng.choice(["f", "m"], 1000),
        "died": rng.choice([True, False], 1000),
    }
    fit = study_of()
    fit.save(tmp_path / "fit")
    checked = pmc.check(fit, pandas.DataFrame(rows), epsilon=0.5, delta=1e-6)
    with new_dossier(tmp_path / "check") as made:
        made.write(checked)
    shown = CliRunner().invoke(app, ["report", str(tmp_path / "check"), str(tmp_path / "fit")])
    assert shown.exit_code == 0
    assert "All 2 together meet" in shown.output
    assert "too narrow" in shown.output


@pytest.mark.parametrize("fault", ["twice", "copied", "two data sets", "seeded", "adjacency", "persons"])
def test_what_does_not_add_up_is_refused(fault: str, tmp_path) -> None:
    first = study_of(books_in(tmp_path))
    others = {
        "twice": lambda: first,
        "copied": lambda: study_of(created="2026-01-02T00:00:00+00:00"),
        "two data sets": lambda: another(0.3, ledger={**first.ledger, "dataset": "others"}),
        "seeded": lambda: another(0.3, randomness={"source": "caller"}),
        "adjacency": lambda: another(0.3, "zero_out"),
        # One row of each person enters there, and every row here.
        "persons": lambda: another(0.3, schema={**first.schema, KEY: {"person": {"field": "id"}}}),
    }
    assert together([first, another(0.3)]).verify()
    with pytest.raises(pmc.errors.DeclarationError):
        together([first, others[fault]()])
