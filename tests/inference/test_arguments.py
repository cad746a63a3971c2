"""A mistake in an argument is answered in words, never by a plain TypeError."""

import inspect
from dataclasses import replace

import jax
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.inference.execute import Execution
from private_mcmc.kernels import PrivateULA
from tests.examples_of_models import normal_mean

ROWS = pmc.Rows(y=pmc.Box(-1.0, 1.0))
TARGET = pmc.Target(9.0, 1e-6)
KERNEL = PrivateULA(normal_mean, 0.02, 1.0)
DECLARED = dict(rows=ROWS, target=TARGET, release="path", num_steps=2, guarantee="run", progress_bar=False)
Y = np.linspace(-1, 1, 6)


def driver(*args, drop=(), **changes):
    settings = {name: value for name, value in (DECLARED | changes).items() if name not in drop}
    return pmc.PrivateMCMC(*(args or (KERNEL,)), **settings)


def ask(function, *args, drop=(), **changes):
    settings = {"model": normal_mean, "rows": ROWS, "target": TARGET, "n": 6} | changes
    return function(*args, **{name: value for name, value in settings.items() if name not in drop})


MISTAKES = {
    "domain: bounds of Real": (lambda: pmc.Real(-5, 5), "takes dim; a number within known bounds is Box"),
    "domain: no dimension": (lambda: pmc.Ball(1.0), "Ball: missing.*'dim'"),
    "domain: a near name": (lambda: pmc.Box(low=0, high=1), "did you mean hi="),
    "domain: of nothing": (lambda: pmc.Counts(), "Counts: missing.*'max'"),
    "rows: in a list": (lambda: pmc.Rows([1]), "Rows: too many positional arguments; it takes name=…"),
    "person: no number": (lambda: pmc.Person(), "Person: missing.*'at_most'"),
    "constructor: nothing": (lambda: pmc.PrivateMCMC(), "missing.*'kernel'"),
    "constructor: no rows": (lambda: driver(drop=("rows",)), "missing.*'rows'"),
    "constructor: two positional": (lambda: driver(KERNEL, ROWS, drop=("rows",)), "too many positional"),
    "constructor: a near name": (lambda: driver(num_chain=2), "num_chain= .did you mean num_chains="),
    "constructor: a device": (lambda: driver(devices=2), "devices= .execution=Execution"),
    "constructor: a ledger": (lambda: driver(ledger="books.db"), "ledger= .bookkeeping=Bookkeeping"),
    "constructor: public arguments": (lambda: driver(model_args={}), "model_args= .the kernel takes it"),
    "constructor: rows": (lambda: driver(rows={"y": pmc.Binary()}), "rows: a dict.*give a Rows"),
    "constructor: target": (lambda: driver(target=3.0), "target: a float.*give a Target"),
    "constructor: model_args": (lambda: driver(replace(KERNEL, model_args=[1])), "model_args: a list"),
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
    "execution: block as text": (lambda: Execution(rows_on_device="3"), "rows_on_device='3'"),
    "execution: devices": (lambda: Execution(devices=1.5), "devices"),
    "bookkeeping: ledger": (lambda: pmc.Bookkeeping("books.db", "rows"), "ledger: a str"),
    "run: a key first": (lambda: driver().run(jax.random.key(0), Y), "no random key.*rng_key="),
    "run: a key of two words first": (lambda: driver().run(jax.random.PRNGKey(0), y=Y), "no random key"),
    "run: a seed first": (lambda: driver().run(0, y=Y), "no random key"),
    "decide: n as text": (lambda: driver().decide("6"), "n='6'"),
    "start as text": (lambda: driver(execution=Execution(init_params="zero")).run(Y), "init_params"),
    "from_plan: nothing": (lambda: pmc.PrivateMCMC.from_plan(), "missing.*'plan'"),
    "from_plan: no plan": (lambda: pmc.PrivateMCMC.from_plan(KERNEL), "plan: a PrivateULA.*give a Plan"),
    "from_plan: a near name": (lambda: pmc.PrivateMCMC.from_plan(KERNEL, execute=None), "execution="),
    "preflight: no n": (lambda: ask(pmc.preflight, drop=("n",)), "missing.*'n'"),
    "preflight: a near name": (lambda: ask(pmc.preflight, tempered=1.0), "did you mean temper="),
    "preflight: rows": (lambda: ask(pmc.preflight, rows=3), "rows: a int"),
    "preflight: target": (lambda: ask(pmc.preflight, target=3), "target: a int"),
    "preflight: n as text": (lambda: ask(pmc.preflight, n="6"), "n='6'"),
    "plan: no n": (lambda: ask(pmc.plan, drop=("n",)), "missing.*'n'"),
    "plan: a near name": (lambda: ask(pmc.plan, max_eror=1.0), "did you mean max_error="),
    "plan: rows": (lambda: ask(pmc.plan, rows=3), "rows: a int"),
    "plan: target": (lambda: ask(pmc.plan, target=(1.0, 1e-6)), "target: a tuple"),
    "plan: an error as text": (lambda: ask(pmc.plan, max_error="small"), "max_error='small'"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_an_argument_is_said_in_words(mistake):
    make, words = MISTAKES[mistake]
    with pytest.raises(pmc.DeclarationError, match=words):
        make()


def test_a_data_set_is_named_with_its_ledger():
    with pytest.raises(pmc.DeclarationError, match="ledger"):
        pmc.Bookkeeping(dataset="rows")


@pytest.mark.parametrize("method", [pmc.PrivateMCMC.run, pmc.PrivateMCMC.resume])
def test_a_column_may_have_the_name_of_the_driver_in_python(method):
    assert inspect.signature(method).parameters["self"].kind is inspect.Parameter.POSITIONAL_ONLY
