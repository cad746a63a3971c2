"""How the dossier looks: what comes first, in light and dark, on paper; nothing is fetched."""

import re

import pytest

from private_mcmc import Target
from private_mcmc.dossier.page import page
from tests.dossier.studies import PREDICTED, books_in, study_of


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
