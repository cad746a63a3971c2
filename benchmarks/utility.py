"""How close are private posteriors to the non-private one, ours and those of the peers?

    python benchmarks/utility.py [--datasets adult …] [--epsilons 0.1 0.3 1 3 10] [--runs 5]
        [--methods ours …] [--json FILE [--resume]] [--html FILE] [--write] [--cases DIR]

Every number is computed on the curator's side, from independent runs against a reference posterior:
root mean square error of posterior means in reference sds, ratio of sds, coverage of the non-private
posterior mean by 50 % and 90 % intervals, energy distance of draws. Each run of a data set, method and ε has
a seed of its own, always the same, so that versions are compared in pairs; ``ours`` alone draws its noise
anew, as releases do. ``make bench-utility`` first creates
the environments of peers that need other versions of our dependencies. ``--write`` puts our runs beside the
oracle into ``benchmarks/measured/utility.md``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import LOADERS, Dataset
from benchmarks.datasets.cases import CASES, load_case
from benchmarks.peers import Budget, DoesNotApply, Method, Unavailable, methods
from benchmarks.utility_metrics import score
from benchmarks.utility_page import beside_the_oracle, page, tables
from benchmarks.utility_reference import Reference, reference
from benchmarks.utility_results import DatasetFacts, Key, Result, Store, load
from benchmarks.written import put

BUILD = Path("build")
DELTA = 1e-6
_DEFAULT = tuple(name for name in LOADERS if name != "made_up")


def measure(
    method: Method, dataset: Dataset, exact: Reference, epsilon: float | None, runs: int, made: int = 0
) -> Result:
    """Run a method and score each run, after ``made`` earlier ones; what cannot run is a result too."""
    budget = Budget(epsilon if epsilon is not None else 1.0, DELTA, made)
    known = {
        "dataset": dataset.name,
        "method": method.name,
        "epsilon": epsilon,
        "adjacency": method.adjacency,
    }
    begin = time.perf_counter()
    try:
        found = method.run(dataset, budget, runs)
    except Unavailable as error:
        return Result(**known, status="not available", reason=str(error))
    except DoesNotApply as error:
        return Result(**known, status="does not apply", reason=str(error))
    seconds = time.perf_counter() - begin
    scores = tuple(score(draws, exact) for draws in found.draws)
    return Result(**known, status="measured", scores=scores, facts=found.facts, seconds=seconds)


def main() -> None:
    options = _options()
    console = Console()
    known = methods(options.peers, options.cache)
    chosen = [known[name] for name in options.methods or known]
    store = Store(options.json, DELTA)
    if options.resume and options.json is not None and options.json.exists():
        store = load(options.json)
    for name in options.datasets:
        dataset = load_case(name, options.cases) if name in CASES else LOADERS[name]()
        exact = reference(dataset, cache=options.cache)
        store.datasets[name] = DatasetFacts(
            name,
            dataset.n,
            dataset.dim,
            dataset.regression.family,
            dataset.unit,
            dataset.source,
            float(exact.ess),
        )
        for method in chosen:
            for epsilon in options.epsilons if method.adjacency is not None else (None,):
                key: Key = (name, method.name, epsilon)
                missing = store.missing(key, options.runs)
                if missing == 0:
                    continue
                with console.status(f"{name}, {method.name}, ε = {epsilon}"):
                    result = measure(method, dataset, exact, epsilon, missing, options.runs - missing)
                store.add(result)
                console.print(_line(store.results[key]), highlight=False)
    abouts = {name: method.about for name, method in known.items()}
    for table in tables(store):
        console.print(table)
    if options.html is not None:
        page(store, abouts).to_html(options.html)
        console.print(f"page: {options.html}")
    if options.write:
        put("utility.md", "python benchmarks/utility.py --write", beside_the_oracle(store))


def _line(result: Result) -> str:
    head = f"{result.dataset:12} {result.method:34} ε = {result.epsilon}"
    rms, ratio = result.summary("rms"), result.summary("sd_ratio")
    if rms is None:
        return f"{head}  {result.status}: {result.reason}"
    spread = "" if ratio is None else f"  sd ratio {ratio.value:.2f}"
    return f"{head}  rms {rms.value:.3g} ± {rms.error:.1g}{spread}  ({result.seconds:.0f} s)"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=(*LOADERS, *CASES), default=list(_DEFAULT))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--runs", type=int, default=5, help="independent runs of every private method")
    parser.add_argument("--methods", nargs="+", choices=tuple(methods(BUILD, BUILD)), help="default: all")
    parser.add_argument("--json", type=Path, help="save every result here")
    parser.add_argument("--html", type=Path, help="write a page with plots here")
    parser.add_argument(
        "--write", action="store_true", help="write our runs into benchmarks/measured/utility.md"
    )
    parser.add_argument("--resume", action="store_true", help="add the runs that the JSON file lacks")
    parser.add_argument("--cases", type=Path, help="folder of published posteriors, for wells and nes")
    parser.add_argument("--peers", type=Path, default=BUILD / "peers", help="environments of peers")
    parser.add_argument("--cache", type=Path, default=BUILD / "utility", help="reference posteriors")
    options = parser.parse_args()
    if options.cases is None and set(options.datasets) & set(CASES):
        parser.error(f"{', '.join(CASES)} need --cases DIR.")
    if options.resume and options.json is None:
        parser.error("--resume needs --json FILE.")
    return options


if __name__ == "__main__":
    main()
