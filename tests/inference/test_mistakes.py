"""Natural mistakes, habits of Stan, NumPyro and R: each gets a sentence with the remedy and costs nothing."""

import inspect
from dataclasses import replace

import jax
import numpy as np
import pandas
import pytest
from numpyro.infer import NUTS

import private_mcmc as pmc
from private_mcmc.inference.question import doubts
from tests.data.fields import flag, levels, number, schema
from tests.examples_of_models import declared, logistic

NOTE = {"name": "note", "type": "string", "private_mcmc": {"role": "ignored"}}
SCHEMA = schema(number("age", 0, 120), flag("died"), levels("region", "n", "s", "e"), NOTE)
# What no message may repeat.
SECRET = 47.5
TABLE = pandas.DataFrame(
    {"age": [30.0, SECRET, 50.0], "died": [True, False, True], "region": ["n", "s", "e"]}
)


def fit(*args, **options):
    return pmc.fit(*args, **{"epsilon": 1.0, "progress_bar": False, **options})


def asked(formula, **options):
    return lambda: fit(TABLE, SCHEMA, formula, **options)


def on(table, formula="died ~ age"):
    return lambda: fit(table, SCHEMA, formula)


ROWS, TARGET = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary()), pmc.Target(9.0, 1e-6)
KERNEL = pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0)
X, Y = np.full((3, 2), 0.1), np.zeros(3)


def driver(**options):
    return declared(KERNEL, ROWS, **{"num_steps": 2} | options)


def ask(function, **changes):
    return function(**{"model": logistic, "rows": ROWS, "target": TARGET, "n": 6} | changes)


MISTAKES = {
    "domain: bounds of Real": (lambda: pmc.Real(-5, 5), "takes dim; a number within known bounds is Box"),
    "domain: no dimension": (lambda: pmc.Ball(1.0), "Ball: missing.*'dim'"),
    "domain: a near name": (lambda: pmc.Box(low=0, high=1), "did you mean hi="),
    "domain: of nothing": (lambda: pmc.Counts(), "Counts: missing.*'max'"),
    "rows: in a list": (lambda: pmc.Rows([1]), "Rows: too many positional arguments; it takes name=…"),
    "person: no number": (lambda: pmc.Person(), "Person: missing.*'at_most'"),
    "constructor: nothing": (lambda: pmc.PrivateMCMC(), "missing.*'kernel'"),
    "constructor: no rows": (lambda: pmc.PrivateMCMC(KERNEL), "missing.*'rows'"),
    "constructor: two positional": (lambda: pmc.PrivateMCMC(KERNEL, ROWS), "too many positional"),
    "constructor: a near name": (lambda: driver(num_chain=2), "num_chain= .did you mean num_chains="),
    "constructor: a device": (lambda: driver(devices=2), "devices= .engine=Devices"),
    "constructor: a ledger": (lambda: driver(ledger="books.db"), "ledger= .bookkeeping=Bookkeeping"),
    "constructor: public arguments": (lambda: driver(model_args={}), "model_args= .the kernel takes it"),
    "constructor: rows": (lambda: declared(KERNEL, {"y": pmc.Binary()}), "rows: a dict.*give a Rows"),
    "constructor: target": (lambda: driver(target=3.0), "target: a float.*give a Target"),
    "constructor: arguments": (lambda: declared(replace(KERNEL, model_args=[1]), ROWS), "model_args: a list"),
    "constructor: guarantee": (lambda: driver(guarantee=3.0), "guarantee=3.0"),
    "constructor: steps as text": (lambda: driver(num_steps="2"), "num_steps='2'"),
    "constructor: no steps": (lambda: driver(num_steps=None), "num_samples"),
    "constructor: too many steps": (lambda: driver(num_steps=10**9), "at most 10,000,000"),
    "constructor: too many samples": (
        lambda: driver(num_steps=None, num_warmup=1, num_samples=10**9),
        "at most 10,000,000",
    ),
    "constructor: steps that disagree": (lambda: driver(num_samples=5), "one of them"),
    "constructor: samples as text": (lambda: driver(num_steps=None, num_samples="5"), "num_samples='5'"),
    "constructor: warm-up as text": (lambda: driver(num_warmup="1"), "num_warmup='1'"),
    "constructor: chains as text": (lambda: driver(num_chains="2"), "num_chains='2'"),
    "constructor: n as text": (lambda: driver(n="6"), "n='6'"),
    "constructor: execution": (lambda: driver(execution=3), "execution: a int.*Execution"),
    "constructor: bookkeeping": (lambda: driver(bookkeeping="ledger"), "bookkeeping: a str.*Bookkeeping"),
    "execution: block as text": (lambda: pmc.Execution(rows_on_device="3"), "rows_on_device='3'"),
    "execution: devices": (lambda: pmc.Execution(engine=2), "engine"),
    "constructor: another kernel": (lambda: declared(NUTS(logistic), ROWS), "NUTS"),
    "bookkeeping: ledger": (lambda: pmc.Bookkeeping("books.db", "rows"), "ledger: a str"),
    "bookkeeping: a data set alone": (lambda: pmc.Bookkeeping(dataset="rows"), "ledger"),
    "bookkeeping: a checkpoint alone": (
        lambda: pmc.Bookkeeping(checkpoint=pmc.Checkpoint("run")),
        "give a ledger",
    ),
    "rows: no domain": (lambda: pmc.Rows(X=1.0), "X"),
    "rows: no column": (lambda: pmc.Rows(), "column"),
    "rows: persons alone": (lambda: pmc.Rows(who=pmc.Person(2)), "declare at least one column"),
    "rows: two ids": (lambda: pmc.Rows(y=pmc.Binary(), a=pmc.Person(2), b=pmc.Person(9)), "both identifiers"),
    "rows: persons of no rows": (lambda: pmc.Person(0), "at_most"),
    "rows: the slots' name": (lambda: pmc.Rows(present=pmc.Binary()), "present.*another name"),
    "rows: the key's name": (lambda: pmc.Rows(rng_key=pmc.Binary()), "rng_key.*another name"),
    "run: a key of two words first": (lambda: driver().run(jax.random.PRNGKey(0), X=X, y=Y), "no random key"),
    "run: a seed first": (lambda: driver().run(0, X=X, y=Y), "no random key"),
    "decide: n as text": (lambda: driver().decide("6"), "n='6'"),
    "start as text": (lambda: driver(execution=pmc.Execution(init_params="0")).run(X=X, y=Y), "init_params"),
    "from_plan: nothing": (lambda: pmc.PrivateMCMC.from_plan(), "missing.*'plan'"),
    "from_plan: no plan": (lambda: pmc.PrivateMCMC.from_plan(KERNEL), "plan: a PrivateULA.*give a Plan"),
    "from_plan: a near name": (lambda: pmc.PrivateMCMC.from_plan(KERNEL, execute=None), "execution="),
    "preflight: no n": (lambda: pmc.preflight(logistic, ROWS, TARGET), "missing.*'n'"),
    "preflight: rows": (lambda: ask(pmc.preflight, rows=3), "rows: a int"),
    "preflight: target": (lambda: ask(pmc.preflight, target=3), "target: a int"),
    "preflight: n as text": (lambda: ask(pmc.preflight, n="6"), "n='6'"),
    "preflight: a near name": (lambda: ask(pmc.preflight, tempered=1.0), "did you mean temper="),
    "plan: no n": (lambda: pmc.plan(logistic, ROWS, TARGET), "missing.*'n'"),
    "plan: a near name": (lambda: ask(pmc.plan, max_eror=1.0), "did you mean max_error="),
    "plan: rows": (lambda: ask(pmc.plan, rows=3), "rows: a int"),
    "plan: target": (lambda: ask(pmc.plan, target=(1.0, 1e-6)), "target: a tuple"),
    "plan: an error as text": (lambda: ask(pmc.plan, max_error="small"), "max_error='small'"),
    "num_samples, as in NumPyro": (asked("died ~ age", num_samples=1000), "follows from the plan"),
    "chains, as in Stan": (asked("died ~ age", chains=4), "follows from the plan"),
    "a seed": (asked("died ~ age", random_seed=1), "from the operating system"),
    "data=, as in R": (lambda: fit("died ~ age", data=TABLE, schema=SCHEMA), "is the first argument"),
    "the key first, to a driver": (lambda: driver().run(jax.random.key(0), X=X, y=Y), "no random key"),
    "the key first, to fit": (lambda: fit(jax.random.key(0), SCHEMA, "died ~ age"), "a table is a path"),
    "the formula first, as in R": (lambda: fit("died ~ age", TABLE), "as schema a DataFrame was given"),
    "no schema": (lambda: fit(TABLE, formula="died ~ age"), "'schema'"),
    "the formula for the schema": (lambda: fit(TABLE, "died ~ age"), "private-mcmc init"),
    "a schema that is not there": (lambda: fit(TABLE, "schema.yml", "died ~ age"), "cannot be read"),
    "the schema of another table": (on({"weight": [1.0]}), r"has no columns \['age', 'died'\]"),
    "y ~ .": (asked("died ~ ."), "name the terms"),
    "factor()": (asked("died ~ factor(region)"), "levels and types are declared"),
    "cbind()": (asked("cbind(died, age) ~ region"), "trials"),
    "Surv()": (asked("Surv(age, died) ~ region"), "exponential, weibull, lognormal, cox"),
    "scale()": (asked("died ~ scale(age)"), "private rows"),
    "bs() without knots": (asked("died ~ bs(age)"), "df=4"),
    "log() of the outcome": (asked("log(age) ~ died", family="gaussian"), "no function of fields"),
    "an unknown column": (asked("died ~ agee"), r"Did you mean 'age'\?"),
    "a column that is ignored": (asked("died ~ note"), "role 'ignored'"),
    "three levels for bernoulli": (asked("region ~ age"), "categorical"),
    "another link": (asked("died ~ age", family="binomial(link='probit')"), "one of bernoulli, binomial"),
    "binomial for yes or no": (asked("died ~ age", family="binomial"), r"Did you mean 'bernoulli'\?"),
    "a prior that is a dict": (asked("died ~ age", priors={"age": "normal(0, 1)"}), "a list of texts"),
    "a prior with sd 0": (asked("died ~ age", priors=["age ~ normal(0, 0)"]), "positive"),
    "epsilon as a text": (asked("died ~ age", epsilon="1"), "positive, finite number"),
    "no epsilon": (lambda: pmc.fit(TABLE, SCHEMA, "died ~ age"), "'epsilon'"),
    "a delta of 2": (asked("died ~ age", delta=2), "delta=2"),
    "another word for the adjacency": (asked("died ~ age", adjacency="add-remove"), "add_remove"),
    "a private number of rows": (asked("died ~ age", adjacency="add_remove"), "public bound"),
    "a ledger's path": (asked("died ~ age", ledger="l.db", dataset="people"), "give a Ledger"),
    "a ledger without a data set": (asked("died ~ age", dataset="people"), "both"),
    "an array": (on(np.zeros((3, 2))), "a data frame, or a dict of columns"),
    "a table twice as wide": (on(pandas.concat([TABLE, TABLE], axis=1)), "are there twice"),
    "all cells missing": (on({"age": [None] * 3, "died": [True] * 3}), "missing: indicator"),
    "no rows": (on({"age": [], "died": []}), "no rows"),
    "a file that is not there": (on("people.csv"), "no such file"),
    "a spreadsheet": (on("people.xlsx"), "save the sheet as CSV"),
    "a data frame for a driver": (lambda: driver().run(TABLE), "pass them by name"),
    "words for a driver": (lambda: driver().run(X=X, y=np.array(["yes", "no", "yes"])), "by a schema"),
    "init_strategy, as in NumPyro": (
        lambda: pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0, init_strategy=None),
        "Execution.init_params=",
    ),
    "thinning, as in NumPyro": (lambda: driver(thinning=2), r"release=\(100, 200, …\)"),
    "extra_fields, as in NumPyro": (lambda: driver().run(X=X, y=Y, extra_fields=("z",)), "stays hidden"),
    "preflight inside jit": (jax.jit(lambda: driver().decide(3)), "outside of jax.jit"),
    "a kernel without a clip": (lambda: pmc.PrivateULA(logistic, step_size=1e-3), "'clip'"),
    "Execution(foo=…)": (lambda: pmc.Execution(engin=1), r"did you mean engine=\?"),
    "Bookkeeping(foo=…)": (lambda: pmc.Bookkeeping(leger=1), r"did you mean ledger=\?"),
    "Target(eps=…)": (lambda: pmc.Target(eps=1, delta=1e-6), "epsilon="),
    "Field(lower=…)": (lambda: pmc.Field("age", "number", lower=0), "minimum"),
    "a type of another program": (lambda: pmc.Field("age", "float"), "number, integer"),
    "rows dropped where all must stay": (
        lambda: fit(TABLE, pmc.Schema((pmc.Field("age", "number", minimum=0.0, maximum=9.0, missing="drop"),
                                       SCHEMA["died"])), "died ~ age"),
        "zero_out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_natural_mistake_gets_a_sentence_with_the_remedy(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, remedy = MISTAKES[mistake]
    with pytest.raises(pmc.PrivateMCMCError, match=remedy) as refusal:
        call()
    said = str(refusal.value)
    assert "\n" not in said and len(said) < 600
    assert str(SECRET) not in said


def test_few_rows_and_large_predicted_errors_are_said_in_plain_words():
    usual = pmc.Prediction(0.5, 0.1, 0.2, 0.02)
    assert doubts(1000, usual) == ()
    assert "12 rows are few" in doubts(12, usual)[0]
    assert "made again after the first stages" in doubts(1000, usual._replace(rms=9.0))[0]
    assert "move effects by 0.7" in doubts(1000, usual._replace(bias=0.7))[0]
    # A prediction for ranges that will not be the run's says so, and blames no bound that will not be.
    (of_outer,) = doubts(1000, usual._replace(rms=9.0, bias=8.0), "That is with other ranges.")
    assert of_outer.endswith("That is with other ranges.") and "narrower" not in of_outer


@pytest.mark.parametrize("method", [pmc.PrivateMCMC.run, pmc.PrivateMCMC.resume])
def test_a_column_may_have_the_name_of_the_driver_in_python(method):
    assert inspect.signature(method).parameters["self"].kind is inspect.Parameter.POSITIONAL_ONLY
