"""Persons with several rows: grouped by any identifiers, run and stated as one row each, refused by name."""

import math
from decimal import Decimal
from unicodedata import normalize

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro.infer.util import log_density
from scipy.stats import norm

import private_mcmc as pmc
from private_mcmc import accounting as acc
from private_mcmc.auditing.mechanism import ungrouped
from private_mcmc.domains.columns import PRESENT, data_mark, host_column
from private_mcmc.domains.persons import OWN_ROWS, identified
from private_mcmc.inference.columns import checked
from private_mcmc.kernels import PrivateULA, langevin_program
from private_mcmc.kernels.gradient import Whitening, clipped_gradient
from private_mcmc.model import read
from private_mcmc.model.refusals import rows_at_ends
from private_mcmc.potential.potential import curvature
from private_mcmc.target import Unit
from tests.examples_of_models import declared, logistic, observed, outcomes
from tests.schedules import schedule
from tests.soundness.front_door.setup import seeded
from tests.soundness.sweep.zoo import ZOO

ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary(), who=pmc.Person(at_most=3))
ANY = pmc.Target(1e6, 1 - 1e-6)
KERNEL = PrivateULA(logistic, step_size=0.01, clip=1.0)


def people(count: int = 40, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    who = np.array([f"p{i}" for i in rng.integers(0, 12, count)], dtype=object)
    return {"X": rng.normal(size=(count, 2)) / 2, "y": rng.integers(0, 2, count), "who": who}


def driver(rows=ROWS, kernel=KERNEL, n=20, **changes) -> pmc.PrivateMCMC:
    return declared(kernel, rows, n=n, **{"target": ANY, "num_steps": 5} | changes)


coin = outcomes(lambda: dist.Beta(2.0, 2.0), lambda p: dist.Bernoulli(probs=p))
wide_mean = outcomes(lambda: dist.Normal(0, 1), lambda mu: dist.Normal(mu, 3.0))


SAME = {
    "whole": lambda i: np.asarray(i, np.int64) + 2**62,
    "unsigned": lambda i: np.asarray(i, np.uint64) + np.uint64(2**63),
    "text": lambda i: np.array([f"no. {each}" for each in i], dtype=np.str_),
    "objects": lambda i: np.array([(j, str(j), f" {j} ", float(j))[k % 4] for k, j in enumerate(i)], object),
    "accents": lambda i: np.array([normalize(("NFC", "NFD")[k % 2], f"Zoë {j}") for k, j in enumerate(i)]),
    "floats": lambda i: np.asarray(i, float),
    "pandas, nullable": lambda i: pd.Series(i, dtype="Int64"),
    "pandas, categories": lambda i: pd.Series(i).astype(str).astype("category"),
}  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(sorted(SAME)), who=st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_identifiers_of_any_type_tell_the_same_persons_apart(kind, who):
    codes = identified("who", SAME[kind](who))
    assert codes.tolist() == [list(dict.fromkeys(who)).index(each) for each in who]


def test_a_ledger_knows_persons_wherever_their_rows_lie_and_however_identifiers_are_written():
    def mark(rows_on_device=None, **changes):
        given, where = {**people(), **changes}, pmc.Execution(rows_on_device=rows_on_device)
        return data_mark(b"key", checked(driver()._run.declared, (), given, None, where)[0])

    numbers = {f"p{i}": 40 - i for i in range(12)}
    written = np.array([numbers[each] for each in people()["who"]])
    assert len({mark(), mark(8), mark(who=written), mark(8, who=written), mark(who=written / 1.0)}) == 1
    assert mark(who=np.roll(written, 1)) != mark()


FIVE = [
    "5", "5.0", "5,0", "05,00", "'05", '="005"', "\u20195", "05", " 5", "+5", "５", "\ufeff5", "5\u200b",
    "5\ufe0f", "\u0665", "5\x7f", 5, 5.0, b"5",
]  # fmt: skip


@pytest.mark.parametrize(
    "spellings",
    [
        FIVE,
        ["0", "00", "0.0", "-0.0", 0],
        ["Zoë", "Zoe\u0308", "Z\u00adoë ", "Zoe\u034f\u0308", "Zo\u3164ë"],
        ["12-345", "12\u2010345", "12\u2011345", "12\u2013345", "12\u2212345", "12－345"],
        ["O'Brien", "O\u2019Brien", "O\u02bcBrien", "O\u00b4Brien", "O＇Brien"],
        ["ward 3", '="ward 3"', "ward\u00a03", "ward  3", "ward\t3", " ward\u20093\n"],
        ["12345678901234567890", "012345678901234567890.0"],
        # R writes 100000 so, Python 10¹⁶ where it is a float.
        ["100000", "1e+05", "1E5", "1.0e05", 100_000, 1e5, "10e+04", "+1e5"],
        ["12345600000000000", "1.23456e+16", "1,23456E+16", 1.23456e16, "1.2345600E+16"],
        ["-200", "-2e+02", "-2e2"],
    ],
)
def test_spellings_of_one_identifier_are_one_person(spellings):
    """Tables of several years, one after the other: who is split in two is protected half."""
    others = "50 5.5 5,5 5,000 5, '5a =5 =\"\" ''5 -5 5.0.0 5a . - a A 123456789 1e e5 1e-05 1.5e0 1e9999"
    codes = identified("who", np.array([*spellings, *others.split()], dtype=object))
    assert len(set(codes[: len(spellings)])) == 1
    assert len(set(codes)) == 1 + len(others.split()) and min(codes) == 0


@pytest.mark.parametrize(
    "column",
    [
        np.array([None, "a", "", "  ", np.nan, "b", pd.NA, pd.NaT], dtype=object),
        pd.Series([None, "a", "", " ", np.nan, "b", None, None], dtype=object),
        np.array([np.nan, 1.0, np.inf, np.nan, -np.inf, 2.0, np.nan, np.nan]),
        pd.Series([None, 2**60, None, None, None, 2**60 + 1, None, None], dtype="Int64"),
        np.array(
            [Decimal("nan"), "a", np.datetime64("NaT", "s"), "nan", " NaN", "b", "<NA>", "None"], dtype=object
        ),
        np.array([np.nan, 1.0, np.nan, np.nan, np.nan, 2.0, np.nan, np.nan]).astype(str),
    ],
)
def test_rows_without_an_identifier_belong_to_nobody(column):
    codes = identified("who", column)
    assert codes[1] != codes[5] and sorted(np.unique(codes)) == [-1, 0, 1] and np.sum(codes == -1) == 6


@pytest.mark.parametrize(
    "column",
    [
        *([1, 2], np.zeros((2, 1), int), np.array([1j, 2]), np.ma.array([1, 2], mask=[0, 1])),
        *(np.array([1, 2], kind) for kind in (np.float32, ">f4", np.float16)),
        *(pd.Series([1, 2], dtype=kind) for kind in ("Float32", "float[pyarrow]")),
    ],
)
def test_what_is_no_column_of_identifiers_is_refused(column):
    with pytest.raises(pmc.DataSchemaError):
        identified("who", column)


def persons_of(grouped) -> list[tuple]:
    """Each person's rows as they are kept, in order, without who has which slot."""
    own, there = grouped[OWN_ROWS] > 0, grouped[PRESENT]
    rows = np.concatenate([grouped["X"], grouped["y"][..., None]], axis=-1)
    return sorted(tuple(map(tuple, rows[i][own[i]])) for i in np.flatnonzero(there))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_a_person_keeps_depends_on_that_persons_rows_alone(data):
    """Not on the order of the file, the other persons, nor on what identifiers are called."""
    seed = data.draw(st.integers(0, 10**6))
    mine, rng = people(data.draw(st.integers(1, 40)), seed), np.random.default_rng(seed)
    before = persons_of(ROWS.grouped(mine, 20))
    shuffled = rng.permutation(len(mine["y"]))
    others = people(30, seed + 1)
    renamed = {name: f"{rng.integers(10**9)}-{name}" for name in np.unique(mine["who"])}
    both = {name: np.concatenate([mine[name][shuffled], others[name]]) for name in mine}
    both["who"] = np.array(
        [renamed[w] for w in mine["who"][shuffled]] + [f"q{w}" for w in others["who"]], object
    )
    after = persons_of(ROWS.grouped(both, 40))
    assert all(person in after for person in before)
    assert all(len(person) <= 3 for person in after)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove", "zero_out"])
def test_more_persons_than_declared_are_refused_before_the_charge(adjacency, tmp_path):
    """Where their number is private those beyond were left out: who came pushed another out, unpaid."""
    books, target = pmc.Ledger.create(tmp_path / "books.db"), pmc.Target(1e6, 1 - 1e-6, adjacency)
    books.declare("people", target, unit="who")
    mcmc = driver(n=3, target=target, bookkeeping=pmc.Bookkeeping(books, "people"))
    with pytest.raises(pmc.DataSchemaError, match="more identifiers than the declared n=3") as refused:
        mcmc.run(**people())
    assert "12" not in str(refused.value) and not books.history()


@pytest.mark.long
@pytest.mark.parametrize("name", ["logistic", "poisson", "bent"])
def test_the_log_density_of_persons_is_numpyros_on_their_rows(name):
    zoo = ZOO[name]
    rows = pmc.Rows(**zoo.rows.columns, who=pmc.Person(4))
    reading, rng = read(zoo.model, rows, n=9), np.random.default_rng(0)
    with jax.enable_x64(True):
        flat = {name: np.asarray(column) for name, column in zoo.rows.synthetic(0, 30).items()}
        grouped = rows.grouped({**flat, "who": rng.integers(0, 8, 30)}, 9)
        kept = ungrouped(grouped, "who")
        del kept["who"]
        columns = {name: jnp.asarray(grouped[name]) for name in reading.rows.columns}
        losses, off = jax.jit(jax.vmap(reading.row_loss, in_axes=(None, 0))), []
        for theta in jnp.asarray(rng.normal(size=(2, reading.dim))):
            potential = reading.neg_log_prior(theta) + jnp.sum(losses(theta, columns))
            off.append(float(potential + log_density(zoo.model, (), kept, reading.constrain(theta))[0]))
        # The prior's constant is no part of a potential.
        assert off[0] == pytest.approx(off[1], abs=1e-9)


@pytest.mark.slow
def test_a_row_that_a_person_lacks_adds_exactly_nothing():
    reading = read(logistic, ROWS, n=4)
    with jax.enable_x64(True):
        full = {name: jnp.asarray(column) for name, column in rows_at_ends(reading.rows, 4).items()}
        own = jnp.asarray([[1, 1, 1], [1, 0, 0], [0, 0, 0], [0, 1, 0]])
        other = {
            name: jnp.where(own.reshape(4, 3, *(1,) * (c.ndim - 2)) > 0, c, 0) for name, c in full.items()
        }
        gradient = clipped_gradient(reading, Whitening(None), 0.7)
        prepared = [gradient.prepare({**c, OWN_ROWS: own}, jnp.ones(4, bool)) for c in (full, other)]
        sums = [gradient.total(jnp.ones(3)[: reading.dim], rows) for rows in prepared]
    assert np.array_equal(*sums)


@pytest.mark.parametrize(("clip", "convex"), [(3.0, True), (2.9, False)])
def test_a_clipped_sum_of_rows_is_convex_only_where_the_clip_is_idle(clip, convex):
    reading = read(ZOO["logistic"].model, ROWS, n=100)
    found = curvature(reading, schedule(num_steps=3, clip=clip, unit=reading.unit))
    # k-fold: n k R² sup ψ'' of the rows, besides the prior's.
    assert found.smoothness == (pytest.approx(1 / 4 + 100 * 3 / 4, rel=1e-8) if convex else math.inf)


@pytest.mark.slow
def test_certificates_have_k_fold_constants_and_no_conjugate_form():
    target = pmc.Target(1.0, 1e-6)
    of_rows = pmc.preflight(coin, pmc.Rows(y=pmc.Binary()), target, n=9)
    of_persons = pmc.preflight(coin, pmc.Rows(y=pmc.Binary(), who=pmc.Person(1)), target, n=9)
    exact = "posterior.beta_binomial"
    assert exact in {statement.argument.rule for statement in of_rows.certificates}
    assert exact not in {statement.argument.rule for statement in of_persons.certificates}
    zoo = ZOO["logistic"]
    single = pmc.preflight(zoo.model, zoo.rows, target, n=30, temper=0.01).certificates[0]
    three = pmc.preflight(zoo.model, ROWS, target, n=30, temper=0.01).certificates[0]
    assert three.gdp == pytest.approx(3 * single.gdp, rel=1e-9) and three.verify()
    assert three.unit == Unit("who", 3)


def test_what_refutes_the_posterior_of_rows_refutes_that_of_persons():
    report = pmc.preflight(ZOO["logistic"].model, ROWS, pmc.Target(0.5, 1e-6), n=30)
    assert report.verdict == "not private" and report.refutation is not None
    assert report.to_dict()["target"]["unit"] == {"name": "who", "rows": 3}


def test_one_person_costs_what_one_row_costs():
    person = driver(num_steps=50).decide(20).statement
    row = driver(pmc.Rows(**ROWS.columns), num_steps=50).decide(20).statement
    assert person.gdp == pytest.approx(row.gdp, rel=1e-9)
    assert "of one person, with all of up to 3 rows" in person.summary().splitlines()[0]
    assert pmc.Statement.from_dict(person.to_dict()) == person and person.verify()


def test_rounding_is_charged_for_all_rows_of_all_persons():
    def allowance(unit: Unit | None) -> float:
        return acc.sensitivity(schedule(num_rows=10**6, step_size=0.1, num_steps=1, unit=unit)) - 2.0

    assert allowance(Unit("who", 50)) == pytest.approx(50 * allowance(None), rel=1e-4)


def test_statements_of_rows_and_of_persons_never_compose():
    person, row = driver().decide(20).statement, driver(pmc.Rows(**ROWS.columns)).decide(20).statement
    household = driver(pmc.Rows(**ROWS.columns, house=pmc.Person(9))).decide(20).statement
    for other in (row, household):
        with pytest.raises(pmc.DeclarationError, match="do not compose"):
            acc.compose(person, other)
        with pytest.raises(pmc.DeclarationError, match="do not compose"):
            acc.adaptive(100.0, "replace_one", (person, other), person.unit)
    fewer = driver(pmc.Rows(**ROWS.columns, who=pmc.Person(2))).decide(20).statement
    assert acc.compose(person, fewer).unit == Unit("who", 3)


@pytest.mark.long
def test_the_law_of_a_chain_of_persons_is_exactly_what_is_claimed():
    """Unclipped Normal rows: the laws of a state on two data sets, held against the claim on a grid."""

    rows = pmc.Rows(y=pmc.Box(-1, 1), who=pmc.Person(4))
    n, gamma, steps, clip = 3, 0.05, 40, 50.0
    decision = driver(rows, PrivateULA(wide_mean, gamma, clip), n, num_steps=steps, release="last").decide(n)
    laws = []
    for worst in (np.ones(4), -np.ones(1)):
        y = np.concatenate([worst, np.zeros(8)])
        who = np.array(["z"] * len(worst) + ["a"] * 4 + ["b"] * 4)
        with jax.enable_x64(True):
            columns = decision.reading.rows.project(rows.grouped({"y": y, "who": who}, n))
            program = langevin_program(decision.reading, decision.schedule)
            prepared = program.prepare(columns, jnp.ones(n, bool))
            zero, one = (
                np.asarray(program.data(jnp.full((1, 1), u), jnp.asarray(0), None, None, prepared))[0, 0]
                for u in (0.0, 1.0)
            )
        keep, push = 1 - gamma * (1 + one - zero), -gamma * zero
        location = push * (1 - keep**steps) / (1 - keep)
        laws.append((location, math.sqrt(2 * gamma * (1 - keep ** (2 * steps)) / (1 - keep**2))))
    grid = np.linspace(-4, 4, 4001)
    for p, q in (laws, laws[::-1]):
        for epsilon in (0.0, 0.05, 0.2):
            density = np.maximum(norm.pdf(grid, *p) - math.exp(epsilon) * norm.pdf(grid, *q), 0)
            assert np.trapezoid(density, grid) <= decision.statement.delta(epsilon)


def test_a_schedule_for_rows_is_refused_for_persons():
    schedule = driver(pmc.Rows(**ROWS.columns)).decide(20).schedule
    with pytest.raises(pmc.DeclarationError, match="protects a row"):
        langevin_program(read(logistic, ROWS, n=20), schedule)


def test_columns_that_do_not_go_with_persons_are_refused(tmp_path):
    rows = people()
    with pytest.raises(pmc.DeclarationError, match="their number"):
        driver(n=None).run(**rows)
    with pytest.raises(pmc.DataSchemaError, match="missing"):
        driver().run(X=rows["X"], y=rows["y"])
    with pytest.raises(pmc.DataSchemaError, match="one identifier for every row") as refused:
        driver().run(**{**rows, "who": rows["who"][:-1]})
    assert not any(sign.isdigit() for sign in str(refused.value)), "how many rows there are is private"
    with pytest.raises(pmc.DataSchemaError, match="present"):
        driver(target=pmc.Target(1e6, 0.9, "zero_out")).run(**rows, present=np.ones(40))
    np.save(tmp_path / "who.npy", np.zeros(40))
    on_disk = host_column("who", np.load(tmp_path / "who.npy", mmap_mode="r"))
    with pytest.raises(pmc.DataSchemaError, match="identifiers are one column"):
        driver().run(**{**rows, "who": on_disk})


def intercepts(X, who, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("persons", 20):
        u = numpyro.sample("u", dist.Normal(0, 1))
    observed(X, dist.Bernoulli(logits=X @ w + u[who]), y)


@pytest.mark.long
def test_with_latents_identifiers_of_any_type_and_order_give_the_same_run():
    """Rows that nobody is named in change nothing; sums of persons in other slots round differently."""
    kernel = PrivateULA(intercepts, step_size=0.01, clip=1.0)
    mcmc = driver(kernel=kernel, execution=pmc.Execution(unsafe_seed=True))
    rows, drawn = people(), []
    numbers = np.array([int(each[1:]) for each in rows["who"]])
    order = np.random.default_rng(3).permutation(len(rows["who"]))
    for kind in ("whole", "text", "objects", "pandas, nullable"):
        who = [*np.asarray(SAME[kind](numbers[order]), object), None]
        given = {name: np.concatenate([rows[name][order], rows[name][:1]]) for name in ("X", "y")}
        mcmc.run(rng_key=seeded(0), **given, who=np.array(who, object))
        drawn.append(mcmc.get_samples()["w"])
    mcmc.run(rng_key=seeded(0), **rows)
    for found in drawn:
        np.testing.assert_allclose(found, mcmc.get_samples()["w"], atol=1e-9)


@pytest.mark.slow
def test_averages_over_hidden_states_are_stated_for_persons():
    release = pmc.Expectations("w", epsilon=0.5, burn_in=10)
    kernel = PrivateULA(logistic, step_size=1e-3, clip=3.0)
    found = driver(kernel=kernel, release=release, num_steps=40, target=pmc.Target(1e3, 0.5)).decide(20)
    assert found.statement.unit == ROWS.unit and found.statement.verify()
