"""The NumPyro model of a design, as source: what is shown is what runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from private_mcmc.data.design import INTERCEPT, Design, Effect
from private_mcmc.data.fields import identifier
from private_mcmc.data.formula import Term

_HEAD = '''"""{formula}

A NumPyro model written by private-mcmc from a schema: every number in it is public. Categories are the
indices of their levels. Edit it, and run it with --model FILE.py:model in place of --formula.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def model({arguments}):
'''


def model_source(design: Design) -> str:
    """Python source of a function ``model`` whose arguments are the row columns."""
    outcome = identifier(design.formula.outcome)
    columns = list(dict.fromkeys(word for effect in design.effects for word in _columns(effect.term)))
    lines: list[str] = []
    first = True
    _, half = design.outcome_scale
    middle = design.outcome_scale[0]
    if design.intercept is not None:
        prior = f"{(design.intercept.mean - middle) / half!r}, {design.intercept.sd / half!r}"
        lines += [
            "# Where every number is in the middle of its range and every category at its first level.",
            f'eta = numpyro.sample("{INTERCEPT}", dist.Normal({prior}))',
        ]
        first = False
    for index, effect in enumerate(design.effects):
        lines += _effect(effect, f"b{index}", half, design, first)
        first = False
    likelihood = design.family.likelihood
    if design.sigma is not None:
        lines.append(
            f"# eta is in units of {half:g} from {middle:g}: half the outcome's range from its middle."
        )
        lines.append(f"# Its sd around the mean is stated: sigma = {design.sigma:g}.")
        likelihood = f"dist.Normal({middle!r} + {half!r} * eta, {design.sigma!r})"
    size = columns[0] if columns else outcome
    lines += [
        f'with numpyro.plate("rows", {size}.shape[0]):',
        f'    numpyro.sample("{design.formula.outcome}", {likelihood}, obs={outcome})',
    ]
    head = _HEAD.format(
        formula=design.formula.text.replace("\\", "").replace('"', "'"),
        arguments=", ".join([*columns, f"{outcome}=None"]),
    )
    return head + "".join(f"    {line}\n" for line in lines)


def compile_model(source: str, name: str = "model.py") -> Callable[..., Any]:
    """The function ``model`` of the source."""
    space: dict[str, Any] = {"__name__": "private_mcmc_model"}
    exec(compile(source, name, "exec"), space)
    found: Callable[..., Any] = space["model"]
    return found


def _columns(term: Term) -> list[str]:
    numbers = [] if term.number is None else list(term.number.fields)
    return [*(identifier(name) for name, _ in term.categories), *numbers]


def _effect(effect: Effect, variable: str, half: float, design: Design, first: bool) -> list[str]:
    term = effect.term
    mean, sd = (value * effect.scale / half for value in (effect.prior.mean, effect.prior.sd))
    size = 1
    for length in effect.shape:
        size *= length
    prior = f"dist.Normal({mean!r}, {sd!r})"
    if effect.shape:
        prior += f".expand([{size}]).to_event(1)"
    value = variable
    if effect.shape:
        if len(effect.shape) > 1:
            value = f"{value}.reshape({effect.shape})"
        if any(reduced for _, reduced in term.categories):
            pads = ", ".join(f"({int(reduced)}, 0)" for _, reduced in term.categories)
            value = f"jnp.pad({value}, {pads if len(effect.shape) == 1 else f'({pads})'})"
        value += f".ravel()[{_index(term, design)}]" if len(effect.shape) > 1 else f"[{_index(term, design)}]"
    words = f"{effect.name}: prior of an effect {effect.prior}"
    if term.number is not None:
        shift = f" - {effect.centre!r}" if effect.centre else ""
        value = f"{value} * ({term.number.source()}{shift})" + (
            f" / {effect.scale!r}" if effect.scale != 1 else ""
        )
        words += "" if effect.scale == 1 else f" per unit; an effect here is one of {effect.scale:g} units"
    levels = "; ".join(
        f"{name}: {', '.join(level.label for level in design.schema[name].all_levels[:8])}"
        + (", …" if len(design.schema[name].all_levels) > 8 else "")
        for name, _ in term.categories
    )
    return [
        _comment(words + "."),
        *([_comment(f"Levels of {levels}.")] if levels else []),
        f"{variable} = numpyro.sample({effect.name!r}, {prior})",
        f"eta = {'' if first else 'eta + '}{value}",
    ]


def _index(term: Term, design: Design) -> str:
    """Where a row's effect stands among those of all levels: one gather, so that its one-hot form is seen."""
    index = ""
    for name, _ in term.categories:
        count = len(design.schema[name].all_levels)
        before = f"({index})" if "+" in index else index
        index = f"{before} * {count} + {identifier(name)}" if index else identifier(name)
    return index


def _comment(words: str) -> str:
    return "# " + " ".join(words.split())
