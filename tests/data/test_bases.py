"""Back in the users' units, a formula's coefficients are those of statsmodels on the users' own columns."""

import jax
import numpy as np
import numpyro
import patsy
import pytest
import statsmodels.api as sm
from scipy.special import eval_legendre

from private_mcmc.data.design import design
from private_mcmc.data.families import family
from private_mcmc.data.formula import read_formula
from private_mcmc.data.source import compile_model, model_source
from private_mcmc.model import read
from tests.data.test_formula import SCHEMA, people

N = 400
PEOPLE = people(N)
AGE, DOSE = PEOPLE["age"], PEOPLE["dose"]
SEXES = ("m", MALE := PEOPLE["sex"] == 0), ("f", FEMALE := PEOPLE["sex"] == 1)
REGION = {level: PEOPLE["region"] == place for place, level in enumerate("nse")}


def splines(text):
    return np.asarray(patsy.dmatrix(f"0 + {text}", {"age": AGE}))


BS = splines("bs(age, knots=(40, 80), degree=3, lower_bound=0, upper_bound=120)")
CR = np.delete(splines("cr(age, knots=(40, 80), lower_bound=0, upper_bound=120)"), 1, axis=1)
NS = dict(zip(("0", "80", "120"), CR.T, strict=True))
T = 2 * (DOSE - 0.5) / 7.5 - 1
CASES = {
    "score ~ bs(age, df=5) + sex": {
        **{f"bs(age, df=5)[{k + 1}]": BS[:, k] for k in range(5)},
        "sex[f]": FEMALE,
    },
    "score ~ ns(age, knots=[40, 80]) * sex": {
        **{f"ns(age, knots=[40, 80])[{k}]": v for k, v in NS.items()},
        "sex[f]": FEMALE,
        **{f"ns(age, knots=[40, 80])[{k}]:sex[f]": v * FEMALE for k, v in NS.items()},
    },
    "score ~ poly(dose, 3) + ns(age, 3)": {
        **{f"poly(dose, degree=3)[{k}]": eval_legendre(k, T) for k in (1, 2, 3)},
        **{f"ns(age, df=3)[{k}]": v for k, v in NS.items()},
    },
    "score ~ age + I(age^2) + offset(log(dose))": {"age": AGE, "I(age ^ 2)": AGE**2},
    "score ~ age * dose * sex": {
        **{"age": AGE, "dose": DOSE, "sex[f]": FEMALE, "age:dose": AGE * DOSE, "age:sex[f]": AGE * FEMALE},
        **{"dose:sex[f]": DOSE * FEMALE, "age:dose:sex[f]": AGE * DOSE * FEMALE},
    },
    "score ~ sex * region * age": {
        "sex[f]": FEMALE,
        **{f"region[{r}]": REGION[r] for r in "se"},
        "age": AGE,
        **{f"sex:region[f, {r}]": FEMALE * REGION[r] for r in "se"},
        "sex:age[f]": AGE * FEMALE,
        **{f"region:age[{r}]": AGE * REGION[r] for r in "se"},
        **{f"sex:region:age[f, {r}]": AGE * FEMALE * REGION[r] for r in "se"},
    },
    # What is centred would have to go to terms that are not there.
    "score ~ sex + sex:age + dose:age": {
        **{"sex[f]": FEMALE, "sex:age[m]": AGE * MALE, "sex:age[f]": AGE * FEMALE, "dose:age": AGE * DOSE},
    },
    "score ~ 0 + region + dose + region:age": {
        **{f"region[{r}]": REGION[r] for r in "nse"},
        "dose": DOSE,
        **{f"region:age[{r}]": AGE * REGION[r] for r in "nse"},
    },
    "score ~ 0 + age + I(age ** 2)": {"age": AGE, "I(age ** 2)": AGE**2},
    "score ~ 0 + region:sex + region:age:sex": {
        **{f"region:sex[{r}, {s}]": REGION[r] * who for r in "nse" for s, who in SEXES},
        **{f"region:age:sex[{r}, {s}]": REGION[r] * who * AGE for r in "nse" for s, who in SEXES},
    },
}


def made(text, kind="gaussian"):
    stated = ["sigma = 3"] if kind == "gaussian" else []
    return design(read_formula(text, SCHEMA), SCHEMA, family(kind), stated)


def columns_of(shown):
    """The predictor's column of every site's entry, and what is there without any, from the model itself."""
    model = compile_model(model_source(shown))
    used = {name: PEOPLE[name] for name in model.__code__.co_varnames[: model.__code__.co_argcount]}
    sizes = {effect.name: max(int(np.prod(effect.shape)), 1) for effect in shown.effects}
    shapes = {effect.name: ((sizes[effect.name],) if effect.shape else ()) for effect in shown.effects}
    if shown.intercept is not None:
        sizes, shapes = {"Intercept": 1, **sizes}, {"Intercept": (), **shapes}
    edges = np.cumsum([0, *sizes.values()])

    def sites(flat):
        parts = zip(shapes.items(), edges[:-1], edges[1:], strict=True)
        return {name: flat[low:high].reshape(shape) for (name, shape), low, high in parts}

    def mean(flat):
        law = numpyro.handlers.trace(numpyro.handlers.substitute(model, sites(flat))).get_trace(**used)
        return law["score"]["fn"].loc * np.ones(N)

    with jax.enable_x64(True):
        start = np.zeros(edges[-1])
        return np.asarray(jax.jacfwd(mean)(start)), np.asarray(mean(start)), sites


@pytest.mark.some(1)
@pytest.mark.parametrize("text", CASES)
def test_without_noise_the_users_coefficients_are_those_of_statsmodels_on_the_users_columns(text):
    shown, wanted = made(text), {name: np.asarray(v, float) for name, v in CASES[text].items()}
    if shown.intercept is not None:
        wanted = {"Intercept": np.ones(N), **wanted}
    rng = np.random.default_rng(0)
    y = rng.normal(50, 20, N)
    offset = np.log(DOSE) if "offset" in text else 0.0
    exact = sm.OLS(y - offset, np.column_stack(list(wanted.values()))).fit()
    own, at_zero, sites = columns_of(shown)
    found = coefficients_of(shown, sites(np.linalg.lstsq(own, y - at_zero, rcond=None)[0]))
    assert found.keys() == wanted.keys()
    scale = np.maximum(exact.bse, 1e-12)
    off = (np.array([found[name] for name in wanted]) - exact.params) / scale
    np.testing.assert_allclose(off, 0.0, atol=1e-5)


def coefficients_of(shown, sites):
    draws = {name: np.asarray(value)[None] for name, value in sites.items()}
    effects = {effect.name: effect for effect in shown.effects}
    return {
        label: float(value)
        for name, values in shown.to_user(draws).items()
        for label, value in zip(
            effects[name].coordinates() if name in effects else (name,), values.ravel(), strict=True
        )
    }


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "text",
    [
        "died ~ bs(age, df=5) * sex",
        "died ~ ns(log(dose), df=3) + poly(age, 3)",
        "died ~ sex * region + I(age ** 2)",
        "died ~ 0 + region + age:sex + dose",
        "died ~ age * dose",
        "died ~ 1",
    ],
)
def test_every_effect_adds_at_most_one_to_the_squared_norm_of_a_row_as_preflight_proves(text):
    shown = made(text, "bernoulli")
    reading = read(compile_model(model_source(shown)), SCHEMA.rows(shown.formula.fields), n=100)
    assert reading.predictor is not None
    count = len(shown.effects) + (shown.intercept is not None)
    assert reading.predictor.radius == pytest.approx(np.sqrt(count), rel=1e-6)


def test_effects_of_a_group_are_correlated_as_lkj_says_and_back_in_the_users_units():
    shown = made("score ~ age + (1 + age | region)")
    rng = np.random.default_rng(3)
    draws = {effect.name: rng.normal(size=(4, *effect.shape)) for effect in shown.effects}
    share = rng.uniform(0.1, 0.9, 4)
    draws |= {"Intercept": rng.normal(size=4), "cor(1 | region, age | region)": share}
    model = compile_model(model_source(shown))
    used = {name: PEOPLE[name] for name in ("age", "region", "score")}
    user = shown.to_user(draws)
    for k in range(4):
        with jax.enable_x64(True):
            sites = {name: values[k] for name, values in draws.items()}
            law = numpyro.handlers.trace(numpyro.handlers.substitute(model, sites)).get_trace(**used)
        own, slopes = (user[name][k][PEOPLE["region"]] for name in ("1 | region", "age | region"))
        stated = user["Intercept"][k] + own + (user["age"][k] + slopes) * AGE
        np.testing.assert_allclose(law["score"]["fn"].loc, stated, rtol=1e-9)
    np.testing.assert_allclose(user["cor(1 | region, age | region)"], 2 * share - 1)
    # Before the slope's own centre is taken off the intercept, the two have the stated sds and correlation.
    many = {name: rng.normal(size=(4000, 3)) for name in ("1 | region", "age | region")}
    many["cor(1 | region, age | region)"] = np.full(4000, 0.8)
    first, second = (effect.of(many) for effect in shown.effects[1:])
    assert np.corrcoef(first.ravel(), second.ravel())[0, 1] == pytest.approx(0.6, abs=0.03)
    assert second.std() == pytest.approx(shown.effects[2].unit, rel=0.03)


def test_two_bars_are_independent_effects_of_a_linear_model():
    shown = made("score ~ age + (1 + age || region)")
    assert [effect.name for effect in shown.effects] == ["age", "1 | region", "age | region"]
    assert not shown.correlations and "Beta" not in model_source(shown)
