"""A dossier may come from anybody: whatever its folder holds, checking it ends soon and in little memory.

How the dossier looks: what comes first, in light and dark, on paper; nothing is fetched.
"""

import contextlib
import json
import os
import re
import resource
from pathlib import Path

import numpy as np
import pytest

from private_mcmc import DeclarationError, OutputError, PrivateMCMCError, Study, Target
from private_mcmc.dossier import verify_dossier
from private_mcmc.dossier.folder import finish
from private_mcmc.dossier.page import page
from private_mcmc.system import read_whole
from tests.dossier.studies import PREDICTED, books_in, study_of

# What checking takes beside the dossier itself.
_MEMORY = 300 * 2**20


def pipe(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)


def device(folder, name):
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")


def large(folder, name):
    """Three gigabytes that take no room on the disk."""
    with (folder / name).open("r+b") as file:
        file.truncate(3 * 2**30)


@pytest.mark.parametrize("fault", [pipe, device, large])
@pytest.mark.parametrize("name", ["study.json", "dossier.html", "draws.csv", "model.py"])
def test_what_is_no_file_or_too_large_is_not_read(folder, fault, name):
    """A pipe hung for ever, a link to /dev/zero took 8.6 GB."""
    fault(folder, name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if name == "study.json":
        with pytest.raises(DeclarationError):
            Study.load(folder)
        with contextlib.suppress(DeclarationError):
            assert not verify_dossier(folder)
    else:
        found = verify_dossier(folder)
        assert [check.what for check in found.checks if check.result == "differs"] == ["hashes of the files"]
        # Nothing is opened once a hash is not that of its file.
        assert sum("hash" in check.why for check in found.checks if check.result == "not checked") == 3
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < _MEMORY


def test_a_record_of_many_lists_is_refused_before_they_are_made(folder):
    (folder / "study.json").write_text("[" + "[]," * 5_000_000 + "[]]")
    with pytest.raises(DeclarationError, match="too many lists"):
        Study.load(folder)


def test_a_dossier_is_not_completed_through_a_link(folder, tmp_path):
    """`report` of an unfinished dossier wrote wherever a link in it led."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (folder / "dossier.html").unlink()
    (folder / "dossier.html").symlink_to(mine)
    with pytest.raises(OutputError, match="is a link"):
        finish(folder, Study.load(folder))
    assert mine.read_text() == "mine"


def test_a_file_is_read_up_to_its_limit(tmp_path):
    place = tmp_path / "file"
    place.write_bytes(b"x" * 100)
    assert read_whole(place, 100) == b"x" * 100
    (tmp_path / "link").symlink_to(place)
    assert read_whole(tmp_path / "link", 100) == b"x" * 100
    with pytest.raises(OSError, match="larger than 99 bytes"):
        read_whole(place, 99)
    with pytest.raises(OSError, match="a link"):
        read_whole(tmp_path / "link", 100, links=False)
    for no_file in ("/dev/zero", tmp_path, Path("a\0b")):
        with pytest.raises(OSError):
            read_whole(no_file)


WRONG = (
    *(("n", "many"), ("n", 0), ("n", 10**400), ("epsilon", None), ("delta", "1e-6"), ("chains", 0)),
    *(("chains", 7), ("draws", {"age": "words"}), ("draws", {"age": [[1.0], [1.0, 2.0]]}), ("draws", [])),
    *(("stages", {}), ("stages", [{"name": 3, "gdp": 0.1}]), ("predicted", {"rms": "x"})),
    *(("ledger", {"cost": 3}), ("expectations", {"mean": [1]}), ("priors", "age ~ normal(0, 1)")),
    ("expectations", {"mean": {"value": [1.0, 2.0], "noise_sd": [1.0, 2.0, 3.0]}}),
    *(("warnings", [1]), ("schema", []), ("statement", []), ("temper", True), ("guarantee", "both")),
    ("versions", {"jax": 1}),
)


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_value_of_another_type_is_refused_when_the_record_is_read(folder, name, value):
    """Some twenty of them ended in a traceback, each somewhere else."""
    record = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps(record | {name: value}))
    with pytest.raises(DeclarationError, match=name):
        Study.load(folder)
    assert not verify_dossier(folder)


def places(record, path=()):
    """Of every value in a record; of long lists the first two."""
    if path:
        yield path
    few = record[:2] if isinstance(record, list) else ()
    for key, value in record.items() if isinstance(record, dict) else enumerate(few):
        yield from places(value, (*path, key))


@pytest.mark.slow
def test_no_value_anywhere_in_a_record_ends_in_another_error_than_ours(folder):
    rng, text = np.random.default_rng(0), (folder / "study.json").read_text()
    values = (None, True, -1, 1e308, "x", "²", "9" * 5000, [], {}, [1], {"a": 1}, 10**30, "inf", [[]], "`")
    every = list(places(json.loads(text)))
    refused = 0
    for _ in range(150):
        record = json.loads(text)
        *inside, last = every[rng.integers(len(every))]
        holder = record
        for key in inside:
            holder = holder[key]
        holder[last] = values[rng.integers(len(values))]
        (folder / "study.json").write_text(json.dumps(record))
        try:
            page(Study.load(folder)).to_dict()
        except PrivateMCMCError:
            refused += 1
    assert 30 < refused < 150


def test_numbers_that_json_lacks_are_read_where_a_run_released_them(tmp_path):
    study = study_of(formula="", draws={"w": [[float("inf"), 1.0]] * 40}, model="")
    (tmp_path / "study.json").write_text(study.to_json())
    assert np.isinf(Study.load(tmp_path).arrays["w"]).any()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return study_of(books_in(tmp_path_factory.mktemp("look"))).report().to_html()


@pytest.mark.long
def test_the_page_compares_what_was_predicted_of_each_coefficient_with_what_was_released(text):
    text = re.sub(r"<[^>]+>", " ", text)
    row = r"Intercept\s+0\.2\s+0\.1\s+0\.22\s+0\.1\d?\s"
    assert re.search(r"sd released\s+" + row, text) and re.search(r"not released\s+0\.03.*?—", text)


def test_nothing_is_fetched_and_nothing_runs(text):
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\((?!#)|(?:src|href)=\"(?!#)", text)


@pytest.mark.long
def test_the_first_thing_is_green_or_amber_and_results_come_before_theorems(text):
    body = text[text.index("<h1>") :]
    assert body.index('class="verdict good"') < body.index("Results") < body.index("<details>")
    assert "not private" not in body[: body.index("Results")].lower()
    amber = page(study_of(target=Target(12.0, 1e-2))).to_html()
    assert 'class="verdict unsure"' in amber and amber.count("<li>") > 6
    seeded = page(study_of(randomness={"source": "caller"})).to_html()
    assert 'class="verdict bad"' in seeded and "Not private" in seeded


def test_a_wide_posterior_is_said_to_be_wide_beside_the_results():
    usual, wide = (page(study_of(expected=PREDICTED | {"rms": rms})).to_html() for rms in (0.5, 4.4))
    assert "about 1.12 times as wide" in usual and "Most of what they show is noise" not in usual
    body = wide[: wide.index("What can be learnt about one person")]
    assert "about 4.51 times as wide. Most of what they show is noise" in body
    assert "times as wide" not in page(study_of(predicted=None, expected=None)).to_html()
