"""A kernel that is broken in its source is caught by the audit, by name; the same source unbroken is not."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from private_mcmc import Box, PrivateULA, Rows, Target
from private_mcmc.audit import Pair, audit, chain_mechanism
from private_mcmc.audit.zoo import bent, mean
from tests.audit import mutants


@dataclass(frozen=True)
class Scenario:
    """A run on which the mutant shows; ``quantity`` is what refutes its claim."""

    changes: tuple[mutants.Change, ...]
    release: Any = "path"
    num_steps: int = 4
    step_size: float = 0.1
    clip: float = 1.5
    num_runs: int = 10_000
    kernel: dict[str, Any] = field(default_factory=dict)
    model: Any = mean
    rows: Rows = field(default_factory=lambda: Rows(y=Box(-50.0, 50.0)))
    apart: dict[str, tuple[float, float]] = field(default_factory=lambda: {"y": (50.0, -50.0)})

    def audited(self, changes: tuple[mutants.Change, ...]) -> Any:
        mechanism = chain_mechanism(
            PrivateULA(self.model, step_size=self.step_size, clip=self.clip, **self.kernel),
            rows=self.rows,
            target=Target(1.0, 1e-5),
            release=self.release,
            num_steps=self.num_steps,
            n=1,
            machinery=mutants.machinery(*changes),
        )
        pair = Pair(*({name: np.array([ends[side]]) for name, ends in self.apart.items()} for side in (0, 1)))
        return audit(mechanism, pair, num_runs=self.num_runs, delta=0.01)


SCENARIOS = {
    "clip forgotten": Scenario((mutants.CLIP_FORGOTTEN,)),
    "clip forgotten where rows have no predictor": Scenario(
        (mutants.CLIP_FORGOTTEN_IN_GENERAL,),
        model=bent,
        rows=Rows(x=Box(-1.0, 1.0), y=Box(-9.0, 9.0)),
        apart={"x": (1.0, 1.0), "y": (9.0, -9.0)},
        num_steps=6,
        clip=0.5,
    ),
    "noise scaled by 0.9": Scenario((mutants.NOISE_TOO_SMALL,), clip=2.2, num_runs=80_000),
    "step size doubled": Scenario((mutants.STEP_DOUBLED,)),
    "prior inside the clip": Scenario(mutants.PRIOR_INSIDE_THE_CLIP, release="last", num_steps=60, clip=0.7),
    "initial state from the data": Scenario((mutants.START_FROM_THE_DATA,), release="last"),
    "temper forgotten": Scenario((mutants.TEMPER_FORGOTTEN,), kernel={"temper": 0.5}),
    "clip in the wrong norm": Scenario(
        (mutants.CLIP_IN_THE_WRONG_NORM,), kernel={"preconditioner": (4.0,)}, step_size=0.05
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_mutant_is_caught(name):
    scenario = SCENARIOS[name]
    found = scenario.audited(scenario.changes)
    assert "gdp" in {comparison.quantity for comparison in found.violations}, f"{name}: {found}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_source_without_the_change_is_not_refuted(name):
    """Every bound of one audit holds but for probability 1e-6."""
    found = SCENARIOS[name].audited(())
    assert found.sound, f"{name}: {found}"
    assert found.tightness > 0.3
