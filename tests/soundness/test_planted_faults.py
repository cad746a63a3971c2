"""Each planted fault is found among the first models of the grammar."""

from dataclasses import replace

import jax
import pytest

from private_mcmc.errors import UnsupportedModel
from private_mcmc.model import read
from private_mcmc.model.program import Output
from private_mcmc.model.refusals import COUNT
from private_mcmc.potential.potential import RowTerm
from private_mcmc.potential.prior import PriorConstants
from private_mcmc.preflight import verdict as decision
from tests.soundness.certified import judge, small
from tests.soundness.fuzz import fault_of
from tests.soundness.grammar import write
from tests.soundness.test_divergences import SEEDS

# Seeds among whose models a fault has to show.
MODELS = 300

# A model in which the first text stands is read as if it were the second.
MISREAD = {
    "another family": ("dist.Laplace(", "dist.Logistic("),
    "another link": ("jax.nn.sigmoid(", "jax.scipy.special.ndtr("),
    "another parametrisation": ("logits=jax.nn.softmax(", "logits=("),
    "probabilities taken for log-odds": ("dist.Categorical(probs=", "dist.Categorical(logits="),
    "another link of a rate": ("jax.nn.softplus(", "jnp.exp("),
    "a weight left out": ("scale=weight", "scale=1.0"),
    "a mask left out": ("mask=seen == 1", "mask=True"),
    "a subsample scaled up": ("[chosen]), obs", "[chosen] * 3), obs"),
    "a hierarchy taken for a prior": ("dist.HalfCauchy(", "dist.HalfNormal("),
}


def found(written, tamper):
    """What the fuzzer says of a model that is read with a fault, if it is read."""
    with jax.enable_x64(True):
        try:
            row_model = tamper(written)
        except UnsupportedModel:
            return None
        return fault_of(row_model, written)


def models_with(text):
    return (written for written in map(write, range(MODELS)) if text in written.source)


@pytest.mark.slow
@pytest.mark.parametrize("fault", MISREAD)
def test_a_model_that_is_read_as_another_is_found(fault):
    true, false = MISREAD[fault]

    def tamper(written):
        other = replace(written, source=written.source.replace(true, false))
        return read(other.model, other.rows, n=COUNT)

    assert any(found(written, tamper) for written in models_with(true))


def changed(written, **change):
    row_model = read(written.model, written.rows, n=COUNT)
    return replace(row_model, **{part: make(row_model) for part, make in change.items()})


def without_jacobian(row_model):
    program = row_model.program
    keys = [program.outputs[Output("jacobian", site.name)] for site in row_model.sites]
    return PriorConstants(
        row_model.sites,
        [],
        lambda theta: (
            row_model.neg_log_prior(theta) + sum(program.run(keys, {program.inputs["theta"]: theta}))
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("HalfCauchy", {"prior": without_jacobian}),
        ("dist.Bernoulli", {"term": lambda found: RowTerm(lambda *at: 2 * found.row_loss(*at), found.rows)}),
    ],
    ids=["Jacobian dropped", "rows counted twice"],
)
def test_a_term_that_is_wrong_is_found(text, change):
    assert any(found(written, lambda w: changed(w, **change)) for written in models_with(text))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [{"gradient": 0.5}, {"strong_convexity": 4.0}], ids="wrong {}".format)
def test_a_wrong_constant_of_a_certificate_is_found(fault, monkeypatch):
    true = decision.constants

    def wrong(*args):
        known = true(*args)
        return replace(known, **{name: factor * getattr(known, name) for name, factor in fault.items()})

    monkeypatch.setattr(decision, "constants", wrong)
    verdicts = (judge(small(seed), ascend=False) for seed in range(SEEDS))
    assert any(verdict is not None and verdict.false for verdict in verdicts)
