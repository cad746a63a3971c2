"""Is the planner's own choice near the best there is? Its settings against a grid that looks at the truth.

    python benchmarks/planner_grid.py [--datasets adult any_visit] [--epsilon 1] [--runs 20] [--json FILE]

Each setting is swept with the others as the planner has them; the best values together are one more
candidate. Candidates are chosen by the error of one set of runs and compared with the planner by fresh ones,
so that luck in choosing does not count. Runs are simulated: the stages and their noise are simulated on the
distinct rows. Not private: the grid looks at errors that nobody may see.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import LOADERS, Dataset
from benchmarks.peers import Budget
from benchmarks.peers.ours import Simulated
from benchmarks.utility import DELTA
from benchmarks.utility_metrics import Summary, score, summarise
from benchmarks.utility_reference import Reference, reference
from private_mcmc.planning import affine, influence

FACTORS = (0.5, 0.7, 1.4, 2.0)
# What a target ratio of at most this asks of the planner.
TARGET = 1.3


@dataclass(frozen=True)
class Setting:
    """Numbers of the planner that are scaled together."""

    name: str
    constants: tuple[str, ...] = ()

    @contextmanager
    def scaled(self, factor: float) -> Iterator[None]:
        """The planner with this setting multiplied by ``factor``."""
        with ExitStack() as stack:
            for constant in self.constants:
                stack.enter_context(_replaced(affine, constant, getattr(affine, constant) * factor))
            if not self.constants:
                chosen = influence.InfluenceCounts.best_clip
                scaled = lambda self, *known: factor * chosen(self, *known)  # noqa: E731
                stack.enter_context(_replaced(influence.InfluenceCounts, "best_clip", scaled))
            yield


SETTINGS = (
    Setting("clip of the run"),
    Setting("share of first second moments", ("FIRST_SHARE",)),
    Setting("share of the warm-up", ("WARM_UP_SHARE",)),
)
Choice = Mapping[str, float]


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def error(dataset: Dataset, exact: Reference, epsilon: float, choice: Choice, runs: int) -> Summary:
    """Root mean square error of posterior means with the planner's settings scaled by ``choice``."""
    with ExitStack() as stack:
        for setting in SETTINGS:
            stack.enter_context(setting.scaled(choice.get(setting.name, 1.0)))
        made = Simulated("replace_one").run(dataset, Budget(epsilon, DELTA), runs)
    found = summarise("rms", [score(draws, exact).rms for draws in made.draws])
    if found is None:
        raise ArithmeticError("no run was made.")
    return found


def search(dataset: Dataset, exact: Reference, epsilon: float, runs: int, console: Console) -> dict[str, Any]:
    """The planner's error, the best candidate's, both on fresh runs, and their ratio."""
    tried: list[tuple[Choice, Summary]] = []

    def attempt(choice: Choice) -> float:
        found = error(dataset, exact, epsilon, choice, runs)
        tried.append((choice, found))
        console.print(f"  {dict(choice) or 'own choice'}: {found.value:.3g} ± {found.error:.1g}")
        return found.value

    own = attempt({})
    together: dict[str, float] = {}
    for setting in SETTINGS:
        values = {factor: attempt({setting.name: factor}) for factor in FACTORS}
        best = min(values, key=lambda factor: values[factor])
        if values[best] < own:
            together[setting.name] = best
    if len(together) > 1:
        attempt(together)
    choice = min(tried, key=lambda entry: entry[1].value)[0]
    fresh_own, fresh_best = (error(dataset, exact, epsilon, each, runs) for each in ({}, choice))
    return {
        "dataset": dataset.name,
        "epsilon": epsilon,
        "best choice": dict(choice),
        "own error": fresh_own.value,
        "own standard error": fresh_own.error,
        "best error": fresh_best.value,
        "best standard error": fresh_best.error,
        "ratio": fresh_own.value / fresh_best.value,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=tuple(LOADERS), default=["adult", "any_visit"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("build/utility"))
    options = parser.parse_args()
    console, records = Console(), []
    for name in options.datasets:
        dataset = LOADERS[name]()
        console.print(f"{name}, ε = {options.epsilon:g}")
        exact = reference(dataset, cache=options.cache)
        record = search(dataset, exact, options.epsilon, options.runs, console)
        records.append(record)
        console.print(
            f"  own {record['own error']:.3g}, best {record['best error']:.3g} with {record['best choice']}: "
            f"ratio {record['ratio']:.2f} (target at most {TARGET})"
        )
    if options.json is not None:
        options.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
