"""The papers' pages: every claim's status follows from its numbers, and the documentation says the same."""

import json
import math
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers import docs
from benchmarks.papers.__main__ import PAGES, make
from benchmarks.papers.bounds import hf_theorem
from benchmarks.papers.experiments.figures import FIGURES, measured
from benchmarks.papers.pages import normals
from benchmarks.papers.pages.grid import delta_at, renyi
from benchmarks.papers.pages.page import Claim
from private_mcmc.accounting import gdp

ROOT = Path(__file__).parents[3]
# Of the pages, which `make papers` writes: nothing of the package rests on them.
pytestmark = pytest.mark.long

# What the papers' numbers are, what ours are, and what follows; the settings are those of the fast pages.
KEY = [
    ("000", "Corollary 3.3", "loose", 0.002556, 0.00265),
    ("000", "after Assumption 3.6", "false", 0.09521, 0.01813),
    ("000", "Proposition 3.7", "holds", 1.0, 1.0),
    ("000", "Proposition 4.6", "loose", 12.43, 4.377),
    ("000", "Theorem 5.2, c = 1, L/μ = 1", "loose", 25.8839, 9.37088),
    ("000", "Theorem 5.2, c = 1, L/μ = 10", "loose", 248.19, 9.99110),
    ("000", "Theorem 5.2, c = 0.1, L/μ = 10", "loose", 10.2520, 0.72512),
    ("000", "C₄ after Theorem 5.2", "false", 13.23, 24.38),
    ("000", "Theorem 5.4, Rényi", "holds", 1.25, 1.25),
    ("001", "Figure 1, n", "holds", 17_864_389, 17_864_770),
    ("001", "Figure 1, posterior", "loose", 0.5, 0.1304),
    ("001", "Figure 1, curve with η of Claim IV.9", "loose", 38.0, 43_789),
    ("001", "Figure 1, curve with η of Section IV-B", "false", 38.0, 0.06547),
    ("001", "Claim IV.9", "holds", 5.0, 24.25),
    ("001", "Section V-B, largest ε", "false", 4.89, 4.418),
    ("001", "Figure 2", "holds", 0.0, 3.0),
    ("001", "Figure 3, lower curve", "holds", 0.0, 0.0),
    ("002", "Table 1, nonconvex", "holds", 5.179, 5.179),
    ("002", "Table 1, dissipative", "loose", 1.397, 1.296),
    ("002", "Figure 1, p = 0.7", "false", 1.0, 1.278),
    ("002", "Figure 1, p = 0.8", "holds", 1.0, 1.002),
    ("002", "Theorem 4.2", "loose", 56, 4),
    ("002", "Theorem 5.2, p = 1", "not proved", 2.874, 1.555),
    ("004", "Corollary 2.3", "loose", 10.0, 1.0),
    ("004", "Section 2.1, Gibbs law", "false", 50.0, 12.5),
    ("004", "Proposition 1", "false", 0.3707, 4.0),
    ("004", "Proposition 2", "false", 0.002403, 0.0036),
    ("004", "Figure 1, S = (10, 10): risk", "false", 17.36, 12.5),
    ("004", "Figure 2, S = (10, 1)", "holds", 22.73, 22.73),
    ("004", "Section 6.1, norm clip", "false", 6.573, 19.0),
    ("004", "Table 1, setting 1, isotropic per layer: δ", "holds", 0.0015, 1 / 600),
    ("004", "Table 1, setting 1, anisotropic: δ", "holds", 0.0012, 0.0018333),
    ("004", "Table 1, setting 2, anisotropic: δ", "holds", 0.062, 0.0362667),
    ("004", "Table 1, setting 2, isotropic per layer: loss", "not reproduced", 0.37, 6.6431),
    ("beyond", "shift bound with two maps, in Gaussian DP", "loose", 7.757, 4.364),
    ("beyond", "last state on Poisson batches", "loose", 2.874, 1.555),
]


@pytest.fixture(scope="module")
def pages():
    return {key: make(key) for key in PAGES}


@pytest.mark.parametrize(("key", "name", "status", "printed", "ours"), KEY)
def test_a_claim_has_these_numbers_and_this_status(pages, key, name, status, printed, ours):
    (claim,) = [claim for claim in pages[key].claims if claim.name == name]
    assert claim.status == status
    assert claim.printed == pytest.approx(printed, rel=1e-3)
    assert claim.ours == (None if ours is None else pytest.approx(ours, rel=1e-3))


def test_nothing_of_ours_is_above_what_a_paper_bounds_with_a_proof(pages):
    """A certified bound of ours that is larger would be "undecided": none is."""
    assert [
        claim.name for page in pages.values() for claim in page.claims if claim.status == "undecided"
    ] == []


def test_every_claim_names_files_and_tests_that_exist(pages):
    for claim in (claim for page in pages.values() for claim in page.claims):
        file, _, name = claim.test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), claim.test
        for path in re.findall(r"benchmarks/papers/[\w/]+(?:\.py)?", claim.code):
            assert (ROOT / path).exists(), claim.code


def cells(text):
    return [
        [cell.strip() for cell in line.split(" | ")] for line in text.splitlines() if line.startswith("| ")
    ]


def same(one, two):
    """Equal words, and numbers equal to one percent: last digits depend on the machine."""
    numbers = [[float(number) for number in re.findall(r"\d+\.?\d*(?:e\d+)?", cell)] for cell in (one, two)]
    words = [re.sub(r"[\d.e−]+", "#", cell) for cell in (one, two)]
    return words[0] == words[1] and numbers[0] == pytest.approx(numbers[1], rel=0.01)


def test_the_documentation_is_what_the_command_writes(pages):
    records = [page.to_dict() for page in pages.values()]
    written = {
        "README.md": docs.papers_page(records[:-1]),
        "BEYOND.md": docs.beyond_page(records[-1]),
    }
    for name, text in written.items():
        there = cells((ROOT / "benchmarks/papers" / name).read_text(encoding="utf-8"))
        here = cells(text)
        assert [row[0] for row in there] == [row[0] for row in here], f"{name}: run `make papers`"
        for old, new in zip(there, here, strict=True):
            assert len(old) == len(new) and all(map(same, old, new)), f"{name}: run `make papers`: {new[0]}"


CLAIM = {"name": "", "states": "", "what": "", "by": "exact", "why": "", "code": ""}


@pytest.mark.parametrize(
    ("relation", "printed", "ours", "by", "status"),
    [
        ("at most", 1.0, 1.0, "exact", "holds"),
        ("at most", 2.0, 1.0, "exact", "loose"),
        ("at most", 0.9, 1.0, "exact", "false"),
        ("at most", 0.9, 1.0, "certified", "undecided"),
        ("at least", 1.0, 2.0, "exact", "loose"),
        ("at least", 2.0, 1.0, "exact", "false"),
        ("equals", 1.0, 1.0005, "exact", "holds"),
        ("equals", 1.0, 1.01, "exact", "false"),
        ("above", 1.0, 1.5, "exact", "holds"),
        ("above", 1.0, 0.5, "exact", "false"),
        ("equals", 1.0, 1.01, "measured", "not reproduced"),
        ("equals", 0.0, 0.0, "measured", "holds"),
        ("at most", 1.0, None, "exact", "not run"),
    ],
)
def test_the_status_of_a_claim_follows_from_its_numbers(relation, printed, ours, by, status):
    claim = Claim(**{**CLAIM, "by": by}, relation=relation, printed=printed, ours=ours)
    assert claim.status == status


def test_a_bound_whose_proof_fails_is_never_said_to_hold():
    assert Claim(**CLAIM, relation="at most", printed=1.0, ours=1.0, proved=False).status == "not proved"


def test_divergences_of_two_normals_agree_with_the_grid_and_the_closed_curve():
    pair = (0.0, 1.0), (0.7, 1.0)
    assert renyi(*normals.masses(pair), 2.0) == pytest.approx(normals.renyi(*pair, 2.0), rel=1e-6)
    assert normals.renyi((0.0, 1.0), (0.5, 1.2), 2.0) == pytest.approx(
        renyi(*normals.masses(((0.0, 1.0), (0.5, 1.2))), 2.0), rel=1e-6
    )
    assert delta_at(*normals.masses(pair), 0.5) == pytest.approx(gdp.delta(0.7, 0.5), rel=1e-4)
    spread = 0.3
    far = [normals.log_density(x, 1.0, 0.5, spread) for x in (-20.0, -21.0)]
    assert far[0] - far[1] == pytest.approx(1 / spread)


@pytest.mark.parametrize("seed", range(3))
def test_the_certificate_of_the_ratio_domain_covers_pairs_drawn_from_it(seed):
    """Posteriors of two data sets that differ in a row, exactly on a grid; every pair counts."""
    rng = np.random.default_rng(seed)
    domain = hf_theorem.RatioDomain(2.0, 1.0, 0.9, 1.8, 0.1)
    rows, slope, epsilon = 60, 400.0, 1.0
    bound = hf_theorem.posterior_delta(domain, rows, slope, epsilon)
    worst = 0.0
    for _ in range(40):
        x = rng.choice([0.9, 1.8], rows)
        ratio = slope + rng.choice([-1, 1], rows) * rows**0.1
        laws = []
        for first in ((0.9, -1), (1.8, 1)):
            x[0], ratio[0] = first[0], slope + first[1] * rows**0.1
            precision = 2.0 + float(np.sum(x**2))
            laws.append((float(np.sum(x**2 * ratio)) / precision, precision**-0.5))
        worst = max(worst, delta_at(*normals.masses(tuple(laws), 20_000), epsilon))
    assert 0 < worst <= bound


def test_every_kept_record_is_of_the_figure_as_it_is_declared():
    for name, figure in FIGURES.items():
        record = measured(name)
        if record is not None:
            assert record["size"] == "here" and record["seconds"] > 0
            declared = json.loads(json.dumps(asdict(figure.experiment("here"))))
            # Of a record of fewer steps the page says how many, and claims nothing.
            asked = record["experiment"]
            assert asked.pop("steps", 0) <= declared.pop("steps", 0) and asked == declared


def test_theorem_iv_1_grows_with_what_is_asked_for():
    domain = hf_theorem.RatioDomain(2.0, 1.0, 0.9, 1.8, 0.1)
    small, large = (hf_theorem.theorem_iv_1(domain, 1.25, 0.5, run, 1e-3)[0] for run in (10.0, 1000.0))
    assert small < large < math.inf
    slope = hf_theorem.largest_slope(domain, 1e6, 0.5, 1e-3)
    first = hf_theorem.posterior_epsilon(domain, 1e6, slope, 1e-3)
    assert first == pytest.approx(0.5, rel=1e-6)
