"""Tables of a table: intervals cover at their level, totals agree, and few people are said to be few."""

import numpy as np
import pytest
from scipy.stats import truncnorm

import private_mcmc as pmc
from private_mcmc.analysis.analysis import interval
from private_mcmc.inference.describe import description
from private_mcmc.inference.question import even_edges
from private_mcmc.release import Contribution
from tests.data.fields import levels, number, schema

SCHEMA = schema(
    *(levels("sex", "f", "m"), levels("region", "n", "s", "w", "none"), number("age", 0, 100)),
    number("bmi", 10, 60, own={"missing": "indicator"}, missingValues=[""]),
    number("visits", 0, 5, "integer"),
)


def people(random, n):
    region = random.choice(3, n, p=[0.6, 0.3, 0.1])
    age = np.clip(50 + 8 * region + 12 * random.normal(size=n), 0, 100)
    bmi = np.clip(24 + 4 * random.normal(size=n), 10, 60)
    return {
        "sex": random.integers(0, 2, n),
        "region": region,
        "age": age,
        "bmi": bmi,
        "bmi_missing": (random.random(n) < 0.2).astype(float),
        "visits": np.minimum(random.poisson(1.5, n), 5),
    }


def exact_sums(asked, mechanism, rows):
    import jax

    columns = {name: np.asarray(values, float) for name, values in rows.items()}
    with jax.enable_x64(True):
        parts = jax.vmap(lambda row: tuple(asked.of_row(row)))(columns)
    made = [Contribution(np.asarray(cells), None if t is None else np.asarray(t)) for cells, t in parts]
    return mechanism.sums(made, np.ones(len(rows["sex"]), bool))


def released(asked, rows, random, gdp, times, adjacency="replace_one"):
    """``times`` releases for the same rows, with normal noise in the place of OpenDP's."""
    n = len(rows["sex"])
    mechanism = asked.mechanism(gdp, n, adjacency)
    exact = exact_sums(asked, mechanism, rows)
    weights = np.concatenate([np.full(f.cells * (1 + f.moments), f.weight) for f in asked.families])
    for _ in range(times):
        yield asked.released(mechanism, exact + mechanism.noise.sd / weights * random.normal(size=len(exact)))


def truth(rows, one):
    """What an answer is about, of the rows themselves."""
    here = np.ones(len(rows["sex"]), bool)
    if one.cell != "everyone":
        name, level = one.cell.split(" ")
        here = rows[name] == [each.label for each in SCHEMA[name].levels].index(level)
    if one.statistic == "count":
        if not one.field:
            return here.sum()
        if one.level == "missing":
            return (here & (rows["bmi_missing"] > 0)).sum()
        place = [each.label for each in SCHEMA[one.field].levels].index(one.level)
        return (here & (rows[one.field] == place)).sum()
    if one.field == "bmi":
        here = here & (rows["bmi_missing"] == 0)
    values = rows[one.field][here]
    if one.statistic.startswith("quantile"):
        return np.quantile(values, float(one.statistic.split()[1]), method="inverted_cdf")
    return values.mean() if one.statistic == "mean" else values.std()


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_intervals_cover_at_their_level(adjacency):
    """Each statistic over 400 tables: a share of 0.9 falls below 0.845 with probability 3e-4."""
    random = np.random.default_rng(3)
    rows = people(random, 3000)
    asked = description(SCHEMA, ["sex", "age", "bmi", "visits"], by=["region"])
    covered: dict[str, list[bool]] = {}
    for found in released(asked, rows, random, 0.2, 400, adjacency):
        for one in asked.answers(found, 0.9):
            if one.value is None or "none" in one.cell or "w" in one.cell:
                continue
            kind = f"{one.statistic} {one.field} {one.cell}"
            assert "quantile" not in kind or one.field != "visits" or one[-3:] == tuple(map(int, one[-3:]))
            true = truth(rows, one)
            covered.setdefault(kind, []).append(one.low - 1e-9 <= true <= one.high + 1e-9)
    shares = {kind: np.mean(hits) for kind, hits in covered.items()}
    assert min(shares.values()) > 0.845, shares
    assert np.mean([share for kind, share in shares.items() if kind.startswith(("mean", "sd"))]) < 0.93
    # People like those of a table have its numbers: halves were rounded both ways.
    visits = [float(one["visits"]) for one in asked.people(found, ["visits"], 4000)]
    assert np.mean(visits) == pytest.approx(rows["visits"].mean(), abs=0.2)


def test_intervals_that_hold_sampling_cover_the_population():
    random = np.random.default_rng(4)
    asked = description(SCHEMA, ["age"], means=["age"], sampling=True)
    hits = {"mean": [], "sd": []}
    for _ in range(400):
        rows = people(random, 400)
        rows["age"] = np.clip(50 + 10 * random.normal(size=400), 0, 100)
        for one in asked.answers(next(released(asked, rows, random, 1.0, 1)), 0.9):
            if one.statistic in hits:
                hits[one.statistic].append(one.low <= {"mean": 50, "sd": 10}[one.statistic] <= one.high)
    assert 0.85 < np.mean(hits["mean"]) < 0.95
    assert 0.85 < np.mean(hits["sd"]) < 0.96


def test_counts_of_one_cell_agree_across_fields_and_with_the_public_total():
    random = np.random.default_rng(5)
    rows = people(random, 1000)
    asked = description(SCHEMA, ["sex", "region", "age"])
    answers = asked.answers(next(released(asked, rows, random, 0.3, 1)))
    for field in ("sex", "region"):
        assert sum(one.value for one in answers if one.field == field) == pytest.approx(1000)
    whole = next(one for one in answers if not one.field)
    assert (whole.low, whole.value, whole.high) == (1000, pytest.approx(1000), 1000)


def test_a_cell_whose_count_may_be_zero_has_too_few_people_and_no_interval_is_empty():
    random = np.random.default_rng(6)
    rows = people(random, 1000)
    asked = description(SCHEMA, ["sex", "age", "bmi"], by=["region"])
    few = []
    for found in released(asked, rows, random, 0.2, 50):
        for one in asked.answers(found):
            if one.value is None:
                few.append(one.cell)
            else:
                assert one.low <= one.high
    assert {cell for cell in few if few.count(cell) > 150} == {"region none"}


@pytest.mark.parametrize("value", [-40.0, -3.0, 0.4, 5.0, 9.7, 55.0])
def test_an_interval_at_the_end_of_what_is_possible_is_no_point(value):
    """A count far below 0 had the interval from 0 to 0, as if nobody was surely there."""
    low, high = interval(value, 2.0, 1.645, 0.0, 10.0)
    cut_off = truncnorm((0 - value) / 2, (10 - value) / 2, value, 2)
    assert 0 <= low < high <= 10 and high - low > 0.05
    assert low == pytest.approx(min(max(value - 3.29, 0), cut_off.ppf(0.1)), abs=1e-3) or low == 0
    assert high == pytest.approx(max(min(value + 3.29, 10), cut_off.ppf(0.9)), abs=1e-3) or high == 10
    assert interval(value, 0.0, 1.645, 0.0, 10.0) == (min(max(value, 0), 10),) * 2


def test_a_mean_that_noise_carries_out_of_the_range_is_no_point():
    """From 0 to 0 visits, as if nobody surely had one."""
    random = np.random.default_rng(8)
    asked, rows = description(SCHEMA, means=["visits"]), people(random, 500) | {"visits": np.zeros(500)}
    answers = [one for found in released(asked, rows, random, 0.05, 100) for one in asked.answers(found)]
    means = [one for one in answers if one.statistic == "mean"]
    assert min(one.value for one in means) == 0 and all(one.low < one.high for one in means)


@pytest.mark.parametrize("seed", range(5))
def test_a_count_is_shown_where_its_interval_is(seed):
    """3,132 people, 3,072 to 3,093, were shown of persons whose number is public."""
    random = np.random.default_rng(seed)
    rows = {name: column[:40] for name, column in people(random, 1000).items()}
    asked = description(SCHEMA, ["sex"], by=["region"])
    *tables, _ = asked.blocks(next(released(asked, rows, random, 0.1, 1, "add_remove")), 0.9)
    for _, value, span, _ in (row for table in tables for row in table.rows):
        low, high = (float(end.replace(",", "")) for end in span.split(" to "))
        assert low <= float(value.replace(",", "")) <= high


def test_the_widest_of_ranks_shares_and_positions_are_alike():
    asked = description(SCHEMA, ["sex", "age"])
    weights = {one.name: one.weight for one in asked.families}
    # A median of sixteen bins adds up half of them, given their total.
    assert weights == {"levels sex": 1.0, "moments age": 1.0, "bins age": 2.0}


def test_a_number_may_make_cells_by_declared_bins():
    asked = description(SCHEMA, ["sex"], by=["bmi"], bins={"bmi": [10, 25, 30, 60]})
    assert asked.cells == (("10 to 25",), ("25 to 30",), ("30 to 60",), ("missing",))
    rows = {"sex": np.zeros(4), "bmi": np.array([10.0, 25, 60, 35]), "bmi_missing": np.array([0.0, 0, 0, 1])}
    mechanism = asked.mechanism(1.0, 4, "replace_one")
    counts = asked.released(mechanism, exact_sums(asked, mechanism, rows)).sums[0].values
    np.testing.assert_array_equal(counts.reshape(4, 2)[:, 0], [1, 1, 1, 1])


def test_bins_of_whole_numbers_name_those_that_they_hold():
    grades = schema(number("grade", 9, 12, "integer"))
    for edges, labels in (
        ([9, 10, 11, 12], ("9", "10", "11 to 12")),
        ([9, 11, 12], ("9 to 10", "11 to 12")),
        ([9, 10.5, 12], ("9 to 10", "11 to 12")),
        ([10, 11, 11.5], ("9 to 10", "11 to 12")),  # whatever their ends, bins hold the range
    ):
        asked = description(grades, by=["grade"], bins={"grade": edges})
        assert tuple(label for (label,) in asked.cells) == labels


def test_bins_of_a_range_over_orders_of_magnitude_are_even_in_logarithms():
    wide = pmc.Field("income", "number", minimum=1.0, maximum=1e6)
    ratios = np.diff(np.log(even_edges(wide, 16)))
    np.testing.assert_allclose(ratios, ratios[0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"by": ["age"]}, "give edges"),
        ({"bins": {"age": [0, 50]}}, "three edges"),
        ({"bins": {"sex": [0, 1, 2]}}, "of a number"),
        ({"fields": ["height"]}, "not a field"),
    ],
)
def test_what_cannot_be_described_is_refused_in_a_line(given, words):
    with pytest.raises(pmc.DeclarationError, match=words):
        description(SCHEMA, **given)
