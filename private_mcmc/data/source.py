"""Models as source, what is shown is what runs: of a design, and of a function whose file still has it."""

from __future__ import annotations

import inspect
import linecache
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import CodeType

from private_mcmc.data.design import INTERCEPT, THRESHOLDS, Design
from private_mcmc.data.effects import Effect, correlation
from private_mcmc.data.expressions import PIECEWISE
from private_mcmc.data.families import STEPS, Prior, ordered_start
from private_mcmc.data.fields import Field, count_of, identifier
from private_mcmc.data.formula import Term
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Model, Record

# The module of models that are written from formulas.
_WRITTEN = "private_mcmc_model"
_HEAD = '''"""{formula}

A NumPyro model written by private-mcmc from a schema: every number in it is public. Categories are the
indices of their levels. Edit it, and run it with --model FILE.py:model in place of --formula.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def model({arguments}):
'''


def model_source(design: Design) -> str:
    """Python source of a function ``model`` whose arguments are the row columns."""
    outcome, formula = identifier(design.formula.outcome), design.formula
    offset = formula.offset
    read: list[str] = []
    for effect in design.effects:
        read += [identifier(name) for name, _ in effect.term.categories]
        read += [word for number in effect.term.numbers for word in number.fields]
    read += [] if offset is None else offset.fields
    trials = formula.trials and (formula.trials if formula.trials.isdigit() else identifier(formula.trials))
    beside = [identifier(name) for name in formula.beside]
    columns = list(dict.fromkeys([*read, *beside]))
    who = identifier(design.schema.person) if any(term.own for term in formula.terms) else ""
    _refuse_taken(design, {outcome, *columns[:1], *beside} - {trials})
    unknown = [name for name in formula.fields if design.schema[name].missing == "marginal"]
    columns += [identifier(f"{name}_missing") for name in unknown]
    middle, half = design.outcome_scale
    lines: list[str] = []
    if design.intercept is not None:
        prior = design.intercept.in_units(1 / half, middle).source() + _expand([len(design.classes)])
        lines += [
            "# Where every number is in the middle of its range and every category at its first level.",
            f'eta = numpyro.sample("{INTERCEPT}", {prior})',
        ]
    for index, effect in enumerate(design.effects):
        lines += _effect(effect, str(index), half, design, not lines)
    if offset is not None:
        lines += [
            _comment(f"Offset {offset.text}."),
            f"eta = {'eta + ' * bool(lines)}({offset.source}){f' / {half!r}' * (half != 1)}",
        ]
    if not lines:
        lines += ["eta = 0.0"]
    lines += _thresholds(design) + _parameters(design)
    if design.family.is_linear:
        lines += [
            f"# eta is in units of {half:g} from {middle:g}: half the outcome's range from its middle.",
            f"mu = {middle!r} + {half!r} * eta",
        ]
    if trials:
        # More successes than trials are no row of a binomial: such a row has as many trials.
        most = (
            trials
            if trials.isdigit()
            else f"{trials} if {outcome} is None else jnp.maximum({trials}, {outcome})"
        )
        lines += [f"trials = {most}"]
    site = f"numpyro.sample({formula.outcome!r}, {design.family.likelihood}, obs={outcome})"
    if formula.event or formula.weights:
        if formula.event:
            lines += [
                "# A row's term is its log hazard, if its event was seen, less its cumulative hazard.",
                f"time = {outcome}",
                *[f"longest = {design.longest!r}"] * ("longest" in design.family.cumulative),
                f"cumulative = {design.family.cumulative}",
                f"log_hazard = {design.family.log_hazard}",
                f"term = {identifier(formula.event)} * log_hazard - cumulative",
            ]
        else:
            # A factor, whose curvature is planned with: a weighted density is none of the outcome's.
            term = f"{design.family.likelihood}.log_prob({outcome})"
            lines += [
                "# A row counts as its weight over the weights' design effect: sum of squares over sum.",
                f"term = {identifier(formula.weights)} / {formula.deff!r} * {term}",
            ]
        site = f"numpyro.factor({formula.outcome!r}, term)"
    lines += [f'with numpyro.plate("rows", {columns[0] if columns else outcome}.shape[0]):', f"    {site}"]
    lines = [line for name in unknown for line in _unknown(design.schema[name])] + lines
    head = _HEAD.format(
        formula=_one_line(formula.text).replace("\\", "").replace('"', "'"),
        arguments=", ".join([*columns, *([who, count_of(who)] if who else []), f"{outcome}=None"]),
    )
    body = "".join(f"    {line}\n" for line in lines)
    if "piecewise(" in body:
        head = head.replace("\ndef model(", f"\n{PIECEWISE}\n\ndef model(")
    return (head if "jax." in body else head.replace("import jax\n", "")) + body


def _refuse_taken(design: Design, columns: set[str]) -> None:
    """Refuse the outcome, or the column that tells the number of rows, by the name of something else."""
    own = {*design.parameters, *(["mu"] if design.family.is_linear else [])}
    own |= {"thresholds", "start"} if design.thresholds else set()
    own |= {"trials"} if design.formula.trials else set()
    own |= {"eta", "term"} if design.formula.event or design.formula.weights else set()
    own |= {"cuts", "hazards", "longest", "cumulative", "log_hazard"} if design.formula.event else set()
    if both := sorted(columns & own):
        raise DeclarationError(
            f"formula {design.formula.text!r}: a model of this family calls something else {both[0]!r}: "
            "rename the field, in the table and in its schema."
        )


def _unknown(field: Field) -> list[str]:
    """A field's missing values, which are integrated over, or summed where it is a category."""
    word, mask, site = identifier(field.name), identifier(f"{field.name}_missing"), field.name
    if field.is_category:
        count = len(field.all_levels)
        name = f"shares({site})"
        lines = [f"shares_of_{word} = numpyro.sample({name!r}, dist.Dirichlet(jnp.ones({count})))"]
        law = f"dist.Categorical(shares_of_{word})"
    else:
        low, high = field.range
        centre, half = (low + high) / 2, (high - low) / 2
        mean, sd = f"mean({site})", f"sd({site})"
        lines = [
            f"mean_of_{word} = numpyro.sample({mean!r}, dist.Normal({centre!r}, {half!r}))",
            f"sd_of_{word} = numpyro.sample({sd!r}, dist.LogNormal({math.log(half / 2)!r}, 0.7))",
        ]
        law = f"dist.Normal(mean_of_{word}, sd_of_{word})"
    return [
        _comment(f"Where {field.name} is missing, every value counts as probable as this says."),
        *lines,
        f'with numpyro.plate("rows", {word}.shape[0]):',
        f"    {word} = numpyro.sample({f'{site} of all'!r}, {law}, obs={word}, obs_mask={mask} == 0)",
    ]


def _thresholds(design: Design) -> list[str]:
    if not design.thresholds:
        return []
    means, sds = ordered_start(design.thresholds + 1)
    return [
        "# The first threshold, and the logarithms of the gaps to the next ones.",
        f"start = dist.Normal(jnp.array({means}), jnp.array({sds})).to_event(1)",
        f'thresholds = numpyro.sample("{THRESHOLDS}", '
        "dist.TransformedDistribution(start, dist.transforms.OrderedTransform()))",
    ]


def _parameters(design: Design) -> list[str]:
    lines = []
    for name, prior in design.parameters.items():
        many = _expand([len(design.formula.cuts)]) * (name == STEPS)
        value = prior.source() if prior.is_stated else f"numpyro.sample({name!r}, {prior.source()}{many})"
        lines += [f"{name} = {value}" + "  # stated, not estimated" * prior.is_stated]
    if STEPS in design.parameters:
        lines += [
            "# Log hazards of eta = 0: of the first step, and of those after each cut.",
            f"cuts, hazards = jnp.array({list(design.formula.cuts)}), jnp.append(0.0, {STEPS})",
        ]
    return lines


@lru_cache(maxsize=32)
def compile_model(source: str) -> Callable[..., object]:
    """The function ``model`` of the source: one and the same for equal sources, so that programs compiled for
    it are shared.
    """
    space: Record = {"__name__": _WRITTEN}
    exec(compile(source, "model.py", "exec"), space)
    found: Callable[..., object] = space["model"]
    return found


def is_written(model: Model) -> bool:
    """Whether the model was written from a formula, and so reads nothing but its arguments."""
    return getattr(model, "__module__", "") == _WRITTEN


def _effect(effect: Effect, index: str, half: float, design: Design, first: bool) -> list[str]:
    term, variable = effect.term, f"b{index}"
    prior = effect.prior.in_units(effect.scale / half)
    words = (
        f"{effect.name}: prior of {'the sd of its effects' if effect.spread else 'an effect'} {effect.prior}"
    )
    words += "" if not term.numbers or effect.scale == 1 else f" per unit; a unit here is {effect.scale:g}"
    lines = [_comment(words + ".")]
    lines += _standard(effect, index, prior, design) if effect.is_standard else _draw(effect, variable, prior)
    value = _of_row(variable, effect, design)
    for number, centre in zip(effect.numbers, effect.centres, strict=True):
        column = f"({number.source}{f' - {centre!r}' if centre else ''})"
        value = f"{value} * {column}{'[:, None]' * bool(effect.classes)}"
    value += f" / {effect.scale!r}" * bool(effect.numbers and effect.scale != 1)
    return [*lines, f"eta = {'' if first else 'eta + '}{value}"]


def _draw(effect: Effect, variable: str, prior: Prior | None) -> list[str]:
    """The effects under their prior, or as standard Normals; of persons in the plate of persons."""
    who, size = identifier(effect.term.group), [math.prod(effect.shape)]
    law = "dist.Normal(0.0, 1.0)" if prior is None else prior.source()
    many = "" if effect.term.own else _expand(size if prior is None else effect.shape)
    line = f"{variable} = numpyro.sample({effect.name!r}, {law}{many})"
    if not effect.term.own:
        return [line]
    return [
        _comment(f"One for each {effect.term.group}, integrated out."),
        f'with numpyro.plate("{who}", {count_of(who)}):',
        f"    {line}",
    ]


def _standard(effect: Effect, index: str, prior: Prior, design: Design) -> list[str]:
    """The effects as standard Normals times their sd, which is estimated or stated."""
    spread, lines = repr(effect.unit), []
    if effect.spread:
        spread = f"sd{index}"
        lines += [f"{spread} = numpyro.sample({effect.spread_name!r}, {prior.source()})"]
    lines += _draw(effect, f"raw{index}", None)
    made = f"raw{index}"
    if effect.leader:
        leader = next(place for place, other in enumerate(design.effects) if other.name == effect.leader)
        site = correlation(effect.term)
        lines += [
            "# The correlation, from -1 to 1.",
            f"cor{index} = 2 * numpyro.sample({site!r}, {design.correlations[site].source()}) - 1",
        ]
        made = f"(cor{index} * raw{leader} + jnp.sqrt(1 - cor{index} ** 2) * raw{index})"
    return [*lines, f"b{index} = {spread} * {made}"]


def _of_row(value: str, effect: Effect, design: Design) -> str:
    """What picks a row's effect out of those of all levels, or of all persons."""
    term, classes = effect.term, effect.classes
    if term.own:
        return f"{value}[{identifier(term.group)}]"
    if not term.categories:
        return value
    if len(effect.shape) > 1:
        value = f"{value}.reshape({effect.shape})"
    if any(reduced for _, reduced in term.categories):
        pads = [(int(reduced), 0) for _, reduced in term.categories] + [(0, 0)] * bool(classes)
        value = f"jnp.pad({value}, {pads[0] if len(pads) == 1 else tuple(pads)})"
    if len(term.categories) > 1:
        value += f".reshape(-1, {len(classes)})" if classes else ".ravel()"
    return f"{value}[{_index(term, design)}]"


def _expand(shape: Sequence[int]) -> str:
    size = math.prod(shape)
    return f".expand([{size}]).to_event(1)" if shape and size else ""


def _index(term: Term, design: Design) -> str:
    """Where a row's effect stands among those of all levels: one gather, so that its one-hot form is seen."""
    index = ""
    for name, _ in term.categories:
        count = len(design.schema[name].all_levels)
        before = f"({index})" if "+" in index else index
        index = f"{before} * {count} + {identifier(name)}" if index else identifier(name)
    return index


def _comment(words: str) -> str:
    return f"# {_one_line(words)}"


def _one_line(words: str) -> str:
    """Words that end no line, and hold nothing that Python takes for no source."""
    return "".join(sign if sign.isprintable() else " " for sign in " ".join(words.split()))


def shown_source(model: Model) -> str:
    """The source of ``model``; empty where there is none, or where its file has another by now."""
    function = inspect.unwrap(model)
    try:
        source, code = inspect.getsource(function), function.__code__  # type: ignore[attr-defined]
        file = inspect.getsourcefile(function) or inspect.getfile(function)
        lines = linecache.getlines(file, function.__globals__)  # type: ignore[attr-defined]
        whole = compile("".join(lines), file, "exec", dont_inherit=True)
    except (OSError, TypeError, AttributeError, SyntaxError, ValueError):
        return ""
    # The text is looked up by the number of its line, which is compared too.
    return source if code in _all(whole) else ""


def _all(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _all(inner)
