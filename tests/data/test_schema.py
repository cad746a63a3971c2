"""A schema is Table Schema, and every row domain is made from it."""

import json

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.data.codebook import read_codebook
from private_mcmc.data.table import encoded, read_identifiers
from private_mcmc.inference.question import question
from private_mcmc.inference.reading import read_columns
from private_mcmc.target import Unit
from tests.data.fields import flag, number

YAML = """
missingValues: ["", NA]
fields:
- {name: id, type: string, private_mcmc: {role: person}}
- {name: age, title: Age, type: number, unit: years, constraints: {minimum: 0, maximum: 120},
   private_mcmc: {missing: indicator}}
- {name: smokes, type: string, constraints: {enum: [no, yes]}}
- {name: region, type: string, categories: [{value: "01", label: North}, {value: "02", label: South},
   {value: "03", label: East}]}
- {name: visits, type: integer, constraints: {minimum: 0, maximum: 20}}
- {name: dead at last, type: boolean}
"""


@pytest.fixture
def schema(tmp_path):
    (tmp_path / "schema.yaml").write_text(YAML)
    return pmc.Schema.load(tmp_path / "schema.yaml")


def test_every_domain_is_made_from_the_schema(schema):
    assert schema.rows() == pmc.Rows(
        age=pmc.Box(0, 120),
        age_missing=pmc.Binary(),
        smokes=pmc.Binary(),
        region=pmc.Categories(3),
        visits=pmc.Counts(20),
        dead_at_last=pmc.Binary(),
    )


def test_words_of_yaml_that_look_like_truth_values_and_numbers_stay_words(schema):
    assert [level.value for level in schema["smokes"].levels] == ["no", "yes"]
    assert [level.value for level in schema["region"].levels] == ["01", "02", "03"]


def test_a_schema_survives_being_written_as_yaml_and_as_json(schema, tmp_path):
    (tmp_path / "again.yaml").write_text(schema.to_yaml())
    (tmp_path / "again.json").write_text(json.dumps(schema.to_dict()))
    assert pmc.Schema.load(tmp_path / "again.yaml") == schema == pmc.Schema.load(tmp_path / "again.json")


TWICE = "fields: [{name: a b, type: boolean}, {name: a-b, type: boolean}]"


@pytest.mark.parametrize(
    "text", ["age,sex\n1,secret-word\n", "fields: [", "- a", "fields: {}", "fields: [{name: [1]}]", TWICE]
)
def test_what_is_no_schema_is_refused_and_never_quoted(tmp_path, text):
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(pmc.DeclarationError) as refusal:
        pmc.Schema.load(tmp_path / "s.yaml")
    assert "secret-word" not in str(refusal.value)
    assert ("given twice" in str(refusal.value)) == (text == TWICE)  # the names are equal in a model


DICTIONARY = """Variable,Label,Type,Unit,Min,Max,Values,Missing
age,Age at entry,integer,years,0,120,,"999"
idp,Deductible plan,integer,,0,1,"0=no, 1=yes",
pay,,numeric,,,,,
note,Remarks,text,,,,,
"""


def test_a_dictionary_gives_ranges_labels_and_missing_codes(tmp_path):
    (tmp_path / "c.csv").write_text(DICTIONARY)
    fields = read_codebook(tmp_path / "c.csv").by_name
    age = fields["age"]
    assert (age.type, age.minimum, age.maximum, age.unit) == ("integer", 0, 120, "years")
    assert age.missing_values == ("", "999") and age.bounds_from == "c.csv"
    assert [(level.value, level.label) for level in fields["idp"].levels] == [("0", "no"), ("1", "yes")]
    assert (fields["pay"].type, fields["pay"].maximum) == ("number", None)
    assert fields["note"].role == "ignored"


def test_a_file_that_is_no_codebook_is_refused_with_what_is(tmp_path):
    (tmp_path / "c.csv").write_text("name,label\nage,Age\n")
    with pytest.raises(pmc.DeclarationError, match="a line for every variable"):
        read_codebook(tmp_path / "c.csv")
    (tmp_path / "c.txt").write_text("")
    with pytest.raises(pmc.DeclarationError, match=r"Table Schema \(JSON, YAML\)"):
        read_codebook(tmp_path / "c.txt")


def test_what_has_no_levels_in_a_codebook_is_no_part_of_models(tmp_path):
    fields = [number("age", 18, 90), {"name": "note"}]
    (tmp_path / "p.json").write_text(json.dumps({"fields": fields}))
    found = read_codebook(tmp_path / "p.json").by_name
    assert found["age"].range == (18, 90) and found["note"].role == "ignored"


def test_names_that_python_or_the_models_source_have_for_something_else_are_taken():
    names = ["lambda", "dist", "eta", "b1", "present", "sample.yr", "2019", "größe", "年齢", "body mass"]
    schema = pmc.Schema.from_dict({"fields": [{"name": name, "type": "boolean"} for name in names]})
    columns = set(schema.rows().columns)
    words = ["lambda_", "dist_", "eta_", "b1_", "present_", "sample_yr", "_2019", "größe", "年齢"]
    assert columns == {*words, "body_mass"} and all(word.isidentifier() for word in columns)


def test_a_boolean_is_shown_by_the_tables_own_words():
    record = {"name": "dead", "type": "boolean", "trueValues": ["dead"], "falseValues": ["alive", "lives"]}
    field = pmc.Schema.from_dict({"fields": [record]})["dead"]
    assert [level.label for level in field.levels] == ["alive", "dead"]
    coded = {"name": "dead", "type": "boolean", "trueValues": ["1.0", "1"], "falseValues": ["0.0", "0"]}
    labels = [{"value": "1", "label": "died"}, {"value": "0", "label": "lives"}]
    for more, wanted in (({}, ["false", "true"]), ({"categories": labels}, ["lives", "died"])):
        schema = pmc.Schema.from_dict({"fields": [{**coded, **more}]})
        for again in (schema, pmc.Schema.from_dict(schema.to_dict())):
            assert [level.label for level in again["dead"].levels] == wanted
            assert encoded(again["dead"], ["1.0", "0"])[0]["dead"].tolist() == [1, 0]
    for wrong in ({"trueValues": []}, {"trueValues": ["alive"]}):
        with pytest.raises(pmc.DeclarationError, match="trueValues"):
            pmc.Schema.from_dict({"fields": [{**record, **wrong}]})
    # Crossed: false would be shown by its word "true", as true is.
    with pytest.raises(pmc.DeclarationError, match=r"labels \['true'\] for two levels"):
        pmc.Schema.from_dict({"fields": [{**coded, "trueValues": ["2"], "falseValues": ["1", "true"]}]})


def test_a_person_with_several_rows_is_the_unit_of_what_is_asked():
    who = {"name": "patient no", "type": "string", "private_mcmc": {"role": "person"}}
    person = {"person": {"field": "patient no", "at_most": 3}}
    fields = [who, number("age", 0, 120), flag("seen")]
    schema = pmc.Schema.from_dict({"fields": fields, "private_mcmc": person})
    assert schema.rows(["age", "seen"]).unit == Unit("patient_no", 3)
    table = {
        "patient no": ["b", "a", None, " b"],
        "age": [30.0, 40.0, 50.0, 60.0],
        "seen": [True, False, True, True],
    }
    assert [*read_identifiers(table, schema)] == ["b", "a", "", "b"]
    with pytest.raises(pmc.DeclarationError, match=r"'person'.*belongs under private_mcmc"):
        pmc.Schema.from_dict({"fields": fields, **person})
    assert question(schema, "seen ~ age").rows.unit == Unit("patient_no", 3)


def test_where_a_person_has_one_row_that_is_enforced():
    """Of those with one identifier one row enters, wherever it stands; rows of nobody do not.

    In which order is drawn at random.
    """

    def sorted_rows(found):
        return sorted(zip(*(found[name].tolist() for name in sorted(found)), strict=True))

    who = {"name": "id", "type": "string", "private_mcmc": {"role": "person"}}
    fields = [who, number("age", 0, 99), flag("sick")]
    schema = pmc.Schema.from_dict({"fields": fields, "private_mcmc": {"person": {"field": "id"}}})
    asked = question(schema, "sick ~ age")
    assert asked.rows.unit is None
    table = {
        "id": ["b", "a", "a", "", "a"],
        "age": [5.0, 1.0, 2.0, 7.0, 3.0],
        "sick": [True, False, True] + [True] * 2,
    }
    found = read_columns(table, schema, asked, "replace_one")
    back = read_columns({name: column[::-1] for name, column in table.items()}, schema, asked, "replace_one")
    young, old = np.sort(found["age"])
    assert len(found["age"]) == 2 and old == 5.0 and young in (1.0, 2.0, 3.0)
    assert sorted_rows(found) == sorted_rows(back)


def test_a_persons_field_is_an_identifier_whatever_else_was_declared_of_it():
    fields = [number("id", 1, 60, "integer"), flag("x")]
    record = {"fields": fields, "private_mcmc": {"person": {"field": "id"}}}
    schema = pmc.Schema.from_dict(record)
    assert list(schema.rows().columns) == ["x"] and pmc.Schema.from_dict(schema.to_dict()) == schema
    with pytest.raises(pmc.DeclarationError, match="role 'person'"):
        schema.rows(["id"])
    with pytest.raises(pmc.DeclarationError, match="tells persons apart"):
        pmc.Schema((pmc.Field("id", "integer", minimum=1.0, maximum=60.0),), "id")
    record["private_mcmc"]["person"]["field"] = ["place", "id"]
    with pytest.raises(pmc.DeclarationError, match="make a column of both"):
        pmc.Schema.from_dict(record)


def test_other_words_may_stand_beside_those_of_the_standard():
    beside = {"description": "x", "rdfType": "x", "source": "x", "example": "3", "lab": "x", "question": "x"}
    fields = [number("age", 18, 95) | beside]
    assert pmc.Schema.from_dict({"fields": fields})["age"].range == (18, 95)
    with pytest.raises(pmc.DeclarationError, match="at_most"):
        pmc.Schema.from_dict({"fields": fields, "private_mcmc": {"person": {"field": "age", "atmost": "3"}}})


def test_types_of_ignored_fields_may_be_any_of_table_schemas():
    place = {"name": "place", "type": "geopoint", "private_mcmc": {"role": "ignored"}}
    assert not pmc.Schema.from_dict({"fields": [place]}).by_name["place"].is_used
    with pytest.raises(pmc.DeclarationError, match="type 'geopoint'"):
        pmc.Schema.from_dict({"fields": [{"name": "place", "type": "geopoint"}]})
