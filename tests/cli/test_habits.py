"""Words that are misspelt in a schema, and runs that no ledger knows."""

import copy

import pytest
import yaml

from private_mcmc import Ledger, Schema, Target
from tests.cli.test_commands import call
from tests.dossier.studies import study_of

FIELDS = {
    "age": {
        "type": "integer",
        "unit": "years",
        "constraints": {"minimum": 18, "maximum": 95},
        "private_mcmc": {"outside": "nearest"},
    },
    "sex": {"type": "string", "constraints": {"enum": ["f", "m"]}},
    "died": {"type": "string", "constraints": {"enum": ["no", "yes"]}},
}
# What no message may hold.
SECRET = "73501"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("habits")
    rows = [f"{20 + i},{'fm'[i % 2]},{('no', 'yes')[i % 3 == 0]}" for i in range(40)]
    (place / "people.csv").write_text(f"age,sex,died\n{SECRET},f,no\n" + "\n".join(rows))
    (place / "schema.yaml").write_text(schema_with())
    Ledger.create(place / "books.db").declare("people", Target(1.0, 1e-6))
    study_of().save(place / "uncharged")
    return place


def schema_with(field="age", **changes):
    fields = copy.deepcopy(FIELDS)
    fields[field] |= changes
    return yaml.safe_dump({"fields": [{"name": name, **one} for name, one in fields.items()]})


def test_a_run_that_no_ledger_was_charged_for_is_not_verified_against_one(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert call(monkeypatch, "verify", "uncharged") == 0
    assert call(monkeypatch, "verify", "uncharged", "--ledger", "books.db") == 1
    assert "charged to no ledger" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"missing_values": ["-9"]}, "write 'missingValues'"),
        ({"units": "years"}, "write 'unit'"),
        ({"na": ["-9"]}, "under missingValues"),
        ({"constraints": {"min": 18, "max": 95}}, "'minimum'"),
        ({"constraints": {"minimum": "18 years", "maximum": 95}}, "without a unit"),
        ({"constraints": {"minimum": 95, "maximum": 18}}, "minimum 95 is not below constraints.maximum 18"),
        ({"type": "Integer"}, "one of number, integer"),
        ({"type": "string", "constraints": {"enum": ["a", "b", "a"]}}, r"levels \['a'\] twice"),
        ({"private_mcmc": {"mising": "indicator"}}, "write 'missing'"),
    ],
)
def test_a_word_that_is_misspelt_in_a_schema_is_not_read_as_nothing(changes, remedy):
    """Codes of missing values under ``missing_values`` counted as values: 999 as the oldest age."""
    from private_mcmc import DeclarationError

    with pytest.raises(DeclarationError, match=remedy):
        Schema.from_dict(yaml.load(schema_with(**changes), yaml.BaseLoader))


def test_other_words_may_stand_beside_those_of_the_standard():
    beside = {"description": "x", "rdfType": "x", "source": "x", "example": "3", "lab": "x", "question": "x"}
    assert Schema.from_dict(yaml.load(schema_with(**beside), yaml.BaseLoader))["age"].unit == "years"
    wrong = {
        **yaml.load(schema_with(), yaml.BaseLoader),
        "private_mcmc": {"person": {"field": "age", "atmost": "3"}},
    }
    with pytest.raises(Exception, match="at_most"):
        Schema.from_dict(wrong)
