"""Mutants of the kernels' own source: one textual change each, compiled beside the real modules."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from private_mcmc.accounting.statement import RULES
from private_mcmc.inference import execute
from private_mcmc.kernels import batches, chain, gradient
from private_mcmc.kernels import step as langevin

_MUTABLE = {gradient, batches, langevin, chain}


@dataclass(frozen=True)
class Change:
    """Replace ``old``, which must occur exactly once in the module's source, by ``new``."""

    module: ModuleType
    old: str
    new: str


Patch = tuple[Any, str, Any]


def patches(*changes: Change) -> tuple[Patch, ...]:
    """What makes every driver run the kernels' modules as they are with ``changes``: owner, name, value."""
    changed_gradient = _compiled(gradient, changes)
    changed_batches = _compiled(batches, changes)
    changed_langevin = _compiled(
        langevin,
        changes,
        schedule_gradient=changed_gradient.schedule_gradient,
        batch_sum=changed_batches.batch_sum,
        BatchDraw=changed_batches.BatchDraw,
        streams=changed_batches.streams,
    )
    changed_chain = _compiled(
        chain,
        changes,
        langevin_program=changed_langevin.langevin_program,
        StepNumbers=changed_langevin.StepNumbers,
    )
    unused = {change.module for change in changes} - _MUTABLE
    assert not unused, unused
    return (
        (execute, "langevin_program", changed_langevin.langevin_program),
        (execute, "chain_runner", changed_chain.chain_runner),
    )


def changed_module(module: ModuleType, *changes: Change, **rebound: Any) -> ModuleType:
    """A module compiled again from its source, with ``changes``, and with names bound to other mutants."""
    return _compiled(module, changes, **rebound)


def _compiled(module: ModuleType, changes: tuple[Change, ...], **rebound: Callable) -> ModuleType:
    text = inspect.getsource(module)
    for change in changes:
        if change.module is module:
            assert text.count(change.old) == 1, (
                f"{module.__name__} holds {change.old!r} {text.count(change.old)} times"
            )
            text = text.replace(change.old, change.new)
    copy = ModuleType(f"{module.__name__}_mutant")
    copy.__file__ = module.__file__
    # Dataclasses look their module up by name while they are built.
    sys.modules[copy.__name__] = copy
    rules = dict(RULES)
    try:
        exec(compile(text, f"{module.__file__} (mutant)", "exec"), copy.__dict__)
    finally:
        del sys.modules[copy.__name__]
        # What verifies statements is the library's own.
        RULES.update(rules)
    for name, value in rebound.items():
        assert hasattr(copy, name), name
        setattr(copy, name, value)
    return copy


CLIP_FORGOTTEN = Change(gradient, "held(slope, jnp.where(rows.present, rows.cap, 0.0))", "slope")
CLIP_FORGOTTEN_IN_GENERAL = Change(gradient, "jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-300))", "1.0")
NOISE_TOO_SMALL = Change(langevin, "jnp.sqrt(2.0 * gamma)", "0.9 * jnp.sqrt(2.0 * gamma)")
STEP_DOUBLED = Change(
    langevin, "gamma = jnp.asarray(numbers.step_size)", "gamma = 2.0 * jnp.asarray(numbers.step_size)"
)
PRIOR_INSIDE_THE_CLIP = (
    Change(gradient, "if model.term.predictor is None:", "if True:"),
    Change(
        gradient,
        "jax.vmap(model.row_slope, in_axes=(None, 0))",
        "jax.vmap(lambda u, row: model.row_slope(u, row) + model.prior_slope(u), in_axes=(None, 0))",
    ),
    Change(langevin, "prior + numbers.temper", "numbers.temper"),
)
START_FROM_THE_DATA = Change(
    chain,
    "                state = self.first_state(theta)\n",
    '                state = self.first_state(jnp.asarray(theta) + rows.columns["y"].mean())\n',
)
TEMPER_FORGOTTEN = Change(langevin, "numbers.temper * total", "total")
CLIP_IN_THE_WRONG_NORM = Change(
    gradient,
    "norm = jnp.linalg.norm(design, axis=-1)",
    "norm = jnp.linalg.norm(jax.vmap(predictor.designs)(columns)[:, 0], axis=-1)",
)
BATCH_FIXED = Change(batches, "jax.random.fold_in(self.stream, self.k)", "self.stream")
DIVIDED_BY_THE_REALISED_SIZE = Change(
    batches,
    "return factor * gradient.total(u, _masked(rows, jax.random.uniform(draw.key, (n,)) < rate, first))",
    "drawn = _masked(rows, jax.random.uniform(draw.key, (n,)) < rate, first); "
    "return factor * gradient.total(u, drawn) * rate * n / jnp.maximum(jnp.sum(drawn.present), 1)",
)
