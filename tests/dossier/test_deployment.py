"""A dossier's entry in a registry of deployments, its signature, and several of one study as one page."""

import re
import subprocess
from dataclasses import replace

import numpy as np
import pandas
import pytest
import yaml
from typer.testing import CliRunner

import private_mcmc as pmc
from private_mcmc import DeclarationError, OutputError, Study, Target
from private_mcmc.cli import app
from private_mcmc.cli.study import report, sign
from private_mcmc.data.fields import KEY
from private_mcmc.data.schema import as_yaml
from private_mcmc.dossier import new_dossier, verify_dossier
from private_mcmc.dossier.publication import QUESTIONS, deployment, read_about, together
from private_mcmc.dossier.record import not_protected
from private_mcmc.dossier.verify import check_signature
from tests.dossier.studies import books_in, statement_of, study_of

# Names of the registry's template (version of 2026), by section; it takes no others.
SECTIONS = {
    "basic": "name data_curators description intended_use data_product_type data_product_region "
    "publication_date data_product_sector",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details "
    "data_source_type data_source_type_details access_type access_type_details",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "sources notes registry_authors",
}
CHOICES = {
    "data_product_type": ("Summary statistics", "Machine learning model", "Dataset", "Synthetic data"),
    "variant_name": ("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
    "model_name": ("Local", "Central", "Shuffle", "Federated"),
    "release_type": ("One release", "Many releases"),
    "data_source_type": ("Static", "Dynamic"),
    "access_type": ("Interactive", "Non-interactive"),
}


@pytest.mark.parametrize(
    "said", [{}, {name: "x" for name in QUESTIONS} | {"curators": ["a"], "authors": ["b"]}]
)
def test_an_entry_is_valid_against_the_registrys_template(said):
    made, unsaid = deployment(study_of(), said)
    again = yaml.safe_load(as_yaml(made))
    assert again == made and set(made) == {"url_slug", "status", "tier", "deployment"}
    for section, fields in made["deployment"].items():
        assert set(fields) <= set(SECTIONS[section].split()), section
        for name, value in fields.items():
            lists = name in ("data_curators", "registry_authors", "privacy_parameters")
            assert isinstance(value, list | dict if lists else str) and value
            assert value in CHOICES.get(name, (value,))
    required = set(SECTIONS["basic"].split()) - {"data_product_sector"}
    assert required <= set(made["deployment"]["basic"])
    assert set(unsaid) == set(QUESTIONS) - set(said)


def test_whatever_people_say_stands_in_the_entry(tmp_path):
    path = tmp_path / "about.yaml"
    said = {name: f"{name} said" for name in QUESTIONS} | {"curators": ["us"], "authors": ["me"]}
    said["sector"] = "Healthcare"
    path.write_text(yaml.safe_dump(said))
    text = as_yaml(deployment(study_of(), read_about(path))[0])
    for value in said.values():
        assert (value[0] if isinstance(value, list) else value) in text
    # In words, and as declarations are written.
    assert "Box(lo=" in text and not re.search(r"\[\W*us|\{\W*box", text)
    report([study_of().save(tmp_path / "study")], about=path, html=tmp_path / "page.html")
    shown = (tmp_path / "page.html").read_text()
    assert all((value[0] if isinstance(value, list) else value) in shown for value in said.values())
    for wrong, match in (({"intended_uses": "x"}, "intended_use"), ({"curators": "us"}, "a list")):
        path.write_text(yaml.safe_dump(wrong))
        with pytest.raises(DeclarationError, match=match):
            read_about(path)


@pytest.mark.parametrize("changes", [{}, {"formula": "", "family": ""}])
def test_draws_go_to_a_table_for_r_in_their_chains(tmp_path, changes):
    study = study_of(chains=4, **changes)
    found = pandas.read_csv(study.save(tmp_path / "study") / "draws.csv")
    assert found.groupby(".chain")[".iteration"].max().tolist() == [10] * 4
    expected = study.to_arviz().posterior["age"].values
    np.testing.assert_allclose(found["age"].to_numpy().reshape(4, 10), expected)


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_what_is_not_protected_is_one_list_on_the_page_and_in_the_entry(adjacency):
    study = study_of(target=Target(1.0, 1e-6, adjacency))
    listed, shown = not_protected(study), str(study.report())
    assert ("number itself is protected" in listed["number"]) is (adjacency != "replace_one")
    entry = deployment(study, {})[0]["deployment"]["dp_variant"]["unprotected_quantities"]
    assert all(value in entry for value in listed.values())
    assert all(what in shown for what in listed)


def test_a_signature_holds_for_the_record_that_was_signed_and_for_allowed_signers_alone(tmp_path, capsys):
    for name in ("mine", "other"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(made, check=True)
        (tmp_path / f"{name}.allowed").write_text(f"{name}@here {(tmp_path / f'{name}.pub').read_text()}")
    folder = study_of().save(tmp_path / "study")
    sign(folder, tmp_path / "mine")
    with pytest.raises(OutputError, match="exists already"):
        sign(folder, tmp_path / "mine")
    found = verify_dossier(folder, allowed_signers=tmp_path / "mine.allowed")
    assert found.answer == "consistent; compared with: a signature"
    again = study_of(table="another.csv").save(tmp_path / "another")
    (again / "study.json.sig").write_bytes((folder / "study.json.sig").read_bytes())
    for place, allowed, why in ((folder, "other", "of none of the"), (again, "mine", "not what was")):
        with pytest.raises(DeclarationError, match=why):
            check_signature(place, (place / "study.json").read_bytes(), tmp_path / f"{allowed}.allowed")
    (again / "model.py").write_text("changed")
    (again / "study.json.sig").unlink()
    with pytest.raises(DeclarationError, match="nothing was signed"):
        sign(again, tmp_path / "mine")
    report([folder], registry=tmp_path / "deployment.yaml")
    assert "Not stated" in capsys.readouterr().out and (tmp_path / "deployment.yaml").exists()


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
