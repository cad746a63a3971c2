"""How many programs XLA compiles for a fit, which ones, and how long that takes.

    python -m benchmarks.programs [--names]

Phases of one process: the plan and the run of a first fit of the demo's census, a second fit of the same
shape on other people, the dossier's check, and a plan of a model with several latents. Nothing is read from
a folder of compiled programs. ``--names`` lists what was compiled in each phase, most often first.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np
from jax import monitoring

from private_mcmc.data.codebook import read_codebook
from private_mcmc.dossier.verify import verify_dossier
from private_mcmc.inference.fitting import plan_fit
from private_mcmc.inference.question import question

_COMPILE = "/jax/core/compile/backend_compile_duration"
_TRACE = "/jax/core/compile/jaxpr_trace_duration"
FORMULA = "income ~ age + education_num + hours_per_week + sex + race"
# Models with more than one predictor of a row, whose plans are general.
GENERAL = {
    "groups": ("income ~ age + sex + (1 | marital_status)", "bernoulli"),
    "counts": ("capital_loss ~ age + sex + race", "negativebinomial"),
}


@dataclass
class Compiled:
    """What JAX compiled and traced in a while: names of programs, seconds; spans of traces within traces."""

    names: list[str] = field(default_factory=list)
    compiling: float = 0.0
    traces: list[tuple[float, float]] = field(default_factory=list)

    def listen(self, event: str, start: float, end: float, **named: str | int) -> None:
        """Take down one span of seconds."""
        if event == _COMPILE:
            self.names.append(str(named["fun_name"]))
            self.compiling += end - start
        elif event == _TRACE:
            self.traces.append((start, end))

    @property
    def tracing(self) -> float:
        """Seconds, what is traced within another trace once."""
        total, last = 0.0, 0.0
        for start, end in sorted(self.traces):
            total += max(end - max(start, last), 0.0)
            last = max(last, end)
        return total


@contextmanager
def compiled() -> Iterator[Compiled]:
    """What is compiled meanwhile, also what is read from a folder of compiled programs."""
    found = Compiled()
    monitoring.register_event_time_span_listener(found.listen)
    try:
        yield found
    finally:
        monitoring.unregister_event_time_span_listener(found.listen)


@contextmanager
def phase(name: str, names: bool) -> Iterator[None]:
    """Print what a phase compiled, and its seconds."""
    began, spent = time.perf_counter(), time.process_time()
    with compiled() as found:
        yield
    wall, cpu = time.perf_counter() - began, time.process_time() - spent
    print(
        f"{name:<28}{len(found.names):>6} programs  compiling {found.compiling:6.2f} s  "
        f"tracing {found.tracing:6.2f} s  in all {wall:6.2f} s, of processors {cpu:6.2f} s",
        flush=True,
    )
    for what, count in Counter(found.names).most_common() if names else ():
        print(f"    {count:>4} {what}")


def census() -> dict[str, np.ndarray]:
    """The demo's people, by column."""
    packed = resources.files("private_mcmc.data").joinpath("adult.csv.gz").read_bytes()
    people = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))
    return {name: np.array([person[name] for person in people]) for name in people[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", action="store_true", help="what was compiled")
    names = parser.parse_args().names
    jax.config.update("jax_enable_compilation_cache", False)
    warnings.simplefilter("ignore")
    with resources.as_file(resources.files("private_mcmc.data").joinpath("adult.codebook.json")) as place:
        schema = read_codebook(place)
    people = census()
    others = np.random.default_rng(1).integers(0, len(people["age"]), len(people["age"]))
    with TemporaryDirectory() as folder:
        for number in ("first", "second"):
            with phase(f"plan, {number} fit", names):
                planned = plan_fit(people, question(schema, FORMULA), epsilon=1.0, progress_bar=False)
            with phase(f"run, {number} fit", names):
                study = planned.run(progress_bar=False)
            people = {name: column[others] for name, column in people.items()}
        with phase("dossier", names):
            study.save(Path(folder) / "study")
        with phase("verify", names):
            verify_dossier(Path(folder) / "study")
    for name, (formula, family) in GENERAL.items():
        with phase(f"plan, {name}", names):
            asked = question(schema, formula, family=family)
            plan_fit(people, asked, epsilon=1.0, progress_bar=False)


if __name__ == "__main__":
    main()
