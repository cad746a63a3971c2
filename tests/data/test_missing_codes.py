"""Codes of missing values that a codebook states as ranges, or without a label, are codes of missing values.

They counted as values, a refusal of −7 as no hours at all, where the table was not the codebook itself.
"""

import pandas
import pytest

from private_mcmc import Schema
from private_mcmc.data.codebook import read_codebook
from private_mcmc.data.table import read_table

DDI = """<codeBook xmlns="ddi:codebook:2_5"><dataDscr><var name="hours"><labl>Weekly hours</labl>
<valrng><range min="0" max="80"/></valrng>
<invalrng><range min="-9" max="-7"/><item VALUE="99"/>OTHER</invalrng>
<varFormat type="numeric"/></var></dataDscr></codeBook>"""


def test_of_an_spss_file(tmp_path):
    pyreadstat = pytest.importorskip("pyreadstat")
    table = pandas.DataFrame({"hours": [40.0, -7.0, -9.0], "mood": [1.0, 2.0, 8.0], "pay": [1.0, 2.0, 3.0]})
    pyreadstat.write_sav(
        table,
        tmp_path / "work.sav",
        variable_value_labels={"hours": {-9.0: "no answer"}, "mood": {1.0: "low", 2.0: "high"}},
        missing_ranges={"hours": [{"lo": -9, "hi": -7}], "mood": [8], "pay": [{"lo": -1e9, "hi": -1}]},
    )
    fields = read_codebook(tmp_path / "work.sav").by_name
    assert set(fields["hours"].missing_values) == {"", "-9", "-8", "-7"}
    assert set(fields["mood"].missing_values) == {"", "8"}
    # So many that no list has them: what is left of them lies outside every range, and is refused or bounded.
    assert fields["pay"].missing_values == ("",)


@pytest.mark.parametrize(
    ("other", "marks"), [("", {"", "-9", "-8", "-7", "99"}), ('<range min="-3"/>', None)]
)
def test_of_a_ddi_codebook(tmp_path, other, marks):
    (tmp_path / "book.xml").write_text(DDI.replace("OTHER", other))
    field = read_codebook(tmp_path / "book.xml")["hours"]
    assert set(field.missing_values) == (marks or {"", "-9", "-8", "-7", "99"})


def test_they_are_read_as_missing(tmp_path):
    (tmp_path / "book.xml").write_text(DDI.replace("OTHER", ""))
    record = read_codebook(tmp_path / "book.xml").to_dict()
    record["fields"][0]["private_mcmc"]["missing"] = "indicator"
    columns = read_table({"hours": [40, -7, 99, None, 12.0]}, Schema.from_dict(record), ["hours"])
    assert columns["hours"].tolist() == [40, 40, 40, 40, 12]
    assert columns["hours_missing"].tolist() == [0, 1, 1, 1, 0]
