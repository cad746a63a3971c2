"""Following any one advice certifies the target, and 3 % less than advised does not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.reparam import TransformReparam
from numpyro.primitives import Messenger

from private_mcmc.model import RowModel, read
from private_mcmc.preflight.certificates import Advice, certificates, constants, meets, posterior_advice
from tests.zoo import ZOO, Entry

BY_NAME = {entry.name: entry for entry in ZOO}
LESS = {"prior precision": 0.97}


class NormalPriors(Messenger):
    """Gives sites that are weaker a prior that is Normal, of this precision, on the unconstrained space."""

    def __init__(self, model: Callable[..., Any], precision: float, weak: frozenset[str]) -> None:
        super().__init__(model)
        self.precision, self.weak = precision, weak

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample" or msg["name"] not in self.weak:
            return
        support, shape = msg["fn"].support, msg["fn"].shape()
        transform = dist.biject_to(support)
        normal = dist.Normal(0.0, self.precision**-0.5).expand(transform.inverse_shape(shape))
        normal = normal.to_event(transform.domain.event_dim)
        real = support.base_constraint if hasattr(support, "base_constraint") else support
        msg["fn"] = (
            normal if real is dist.constraints.real else dist.TransformedDistribution(normal, transform)
        )


def reading(entry: Entry) -> RowModel:
    return read(entry.model, entry.rows, n=entry.n, model_args=entry.model_args)


def advised(entry: Entry, row_model: RowModel) -> tuple[Advice, ...]:
    known = constants(row_model, entry.clip)
    settings = {"n": entry.n, "target": entry.target}

    def certify(temper: float) -> Any:
        return certificates(row_model, known, temper=temper, whole_curve=False, **settings)

    return posterior_advice(row_model, known, certify, temper=entry.temper, **settings)


def is_certified(entry: Entry) -> bool:
    row_model = reading(entry)
    known = constants(row_model, entry.clip)
    found = certificates(
        row_model, known, n=entry.n, temper=entry.temper, target=entry.target, whole_curve=False
    )
    return any(meets(statement, entry.target) for statement in found)


def followed(entry: Entry, row_model: RowModel, advice: Advice, share: float) -> Entry:
    """The declarations after ``share`` times the advised number."""
    value = advice.value * share
    if advice.change == "temper":
        return replace(entry, temper=value)
    if advice.change == "clip":
        return replace(entry, clip=value)
    weak = [site.name for site in row_model.sites if not row_model.proved(site)[0] >= advice.value]
    normal = NormalPriors(entry.model, value, frozenset(weak))
    real = [site.name for site in row_model.sites if site.support == "real"]
    written = {name: TransformReparam() for name in weak if name not in real}
    model = handlers.reparam(normal, config=written)
    return replace(entry, model=model, clip=1.0 if "·C²" in advice.text else entry.clip)


def check(entry: Entry) -> None:
    row_model = reading(entry)
    if is_certified(entry):
        return
    for advice in advised(entry, row_model):
        if advice.value is None:
            continue
        assert is_certified(followed(entry, row_model, advice, 1.0)), advice
        less = followed(entry, row_model, advice, LESS.get(advice.change, 1.03))
        assert not is_certified(less), advice


@pytest.mark.some(1)
@pytest.mark.parametrize("name", sorted(BY_NAME, key="logistic".__ne__))
def test_advice_is_enough_and_less_is_not(name: str) -> None:
    check(BY_NAME[name])
