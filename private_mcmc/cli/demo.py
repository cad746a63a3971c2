"""``private-mcmc demo``: from a codebook to a dossier, on a census's 48,842 people, by commands alone."""

from __future__ import annotations

import contextlib
import gzip
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from private_mcmc.cli.common import JsonOption
from private_mcmc.errors import NotYetSupported, OutputError
from private_mcmc.target import Target

if TYPE_CHECKING:
    import jax

    from private_mcmc.data import Answers
    from private_mcmc.data.effects import Array
    from private_mcmc.dossier import Study
    from private_mcmc.release.released import ReleasedExpectations
    from private_mcmc.report import Report

FORMULA = "income ~ age + education_num + hours_per_week + sex + race"
_DRAWS = 2_000
# Square of the distance, in posterior sds, that an optimum may be from the mode.
_OFF = 1e-4
# Chains whose scale is reduced by more when they are put together do not agree.
_MIXED = 1.05
# Hours: the stated sd of people's working weeks.
_WEEK = 12.0


def demo(
    epsilon: Annotated[float, typer.Option(help="ε of the fit")] = 1.0,
    output: Annotated[
        Path, typer.Option(help="folder for everything; a free name beside it if taken")
    ] = Path("demo-study"),
    compare: Annotated[bool, typer.Option(help="compare with the answer without privacy")] = True,
    as_json: JsonOption = False,
) -> None:
    """From a codebook to a dossier: UCI Adult's 48,842 people, commands that you can type yourself."""
    Target(epsilon, 1e-6)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        folder = _prepared(output)
        with contextlib.chdir(folder):
            _story(epsilon, compare)
    if as_json:
        files = {path.name: str(path) for path in sorted(folder.iterdir())}
        typer.echo(json.dumps({"folder": str(folder), "files": files}))


def _prepared(output: Path) -> Path:
    """A new folder with the table and its codebook."""
    names = (output, *(output.with_name(f"{output.name}-{k}") for k in range(2, 1000)))
    folder = next((name for name in names if not name.is_dir()), output)
    packed = resources.files("private_mcmc.data")
    try:
        folder.mkdir(parents=True)
        (folder / "people.csv").write_bytes(gzip.decompress(packed.joinpath("adult.csv.gz").read_bytes()))
        (folder / "codebook.json").write_bytes(packed.joinpath("adult.codebook.json").read_bytes())
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror}).") from None
    return folder


def _story(epsilon: float, compare: bool) -> None:
    from private_mcmc.dossier import Study

    _say(
        f"UCI Adult, an extract of the 1994 US census: 48,842 people. In {Path.cwd().name}/ there are "
        "people.csv, as private as any table here, and codebook.json, which is public."
    )
    _rule("1. A schema from the codebook; of the table only the header is read")
    _run("init people.csv --codebook codebook.json --output schema.yaml")
    _rule("2. A ledger: all that may ever be told about these people")
    _run(f"ledger init ledger.db --dataset adult --epsilon {3 * epsilon:g} --delta 1e-6")
    _rule("3. The fit, planned, shown, and then paid for")
    _run(
        f'fit people.csv --schema schema.yaml --formula "{FORMULA}" --epsilon {epsilon:g} --out study '
        "--ledger ledger.db --dataset adult --purpose demonstration "
        "--profile age=40,education_num=13,hours_per_week=40,sex=Female --yes"
    )
    _rule("4. The dossier is checked: anywhere, without the table")
    _run("verify study --ledger ledger.db")
    _rule("5. One number of it is changed by hand")
    _tamper()
    _run("verify changed")
    _rule("6. One number, and no δ: a noised expectation")
    # As Gaussian DP a pure ε of 0.5 costs 0.624, more than the fit leaves of the ledger's ε = 3.
    _say(_one_number(0.4 * epsilon))
    if compare:
        _rule("7. The curator's side: how far from the answer without privacy?")
        page = comparison(Study.load("study"), Path("people.csv"))
        page.show()
        page.to_html("comparison.html")
    _rule("Where to look")
    _say(f"{Path.cwd() / 'study' / 'dossier.html'}: the page to read, print and sign.")
    if compare:
        _say(f"{Path.cwd() / 'comparison.html'}: for you alone; it was computed without privacy.")


def _one_number(epsilon: float) -> str:
    """The mean working week as an average over hidden states with Laplace noise: pure ε.

    Released states carry Gaussian noise and always need a δ. Where none is allowed and few numbers are
    wanted, a noised expectation is the right choice: its noise is set by how far a row moves a coupled chain.
    """
    import numpyro
    import numpyro.distributions as dist

    from private_mcmc.data.schema import Schema
    from private_mcmc.data.table import data_marks, read_table
    from private_mcmc.inference import Bookkeeping, PrivateMCMC
    from private_mcmc.kernels import PrivateULA
    from private_mcmc.release import Expectations, Ledger

    def week(hours_per_week: Array) -> None:
        mean = numpyro.sample("mean", dist.Normal(40.0, 20.0))
        with numpyro.plate("rows", hours_per_week.shape[0]):
            numpyro.sample("hours", dist.Normal(mean, _WEEK), obs=hours_per_week)

    schema, table = Schema.load("schema.yaml"), Path("people.csv")
    columns = read_table(table, schema, ["hours_per_week"])
    count = len(columns["hours_per_week"])
    # Half of the largest stable step; the clip is a row's slope when it is as far off as hours go.
    kernel = PrivateULA(week, step_size=_WEEK**2 / count / 2, clip=60 / _WEEK**2)
    mcmc = PrivateMCMC(
        kernel,
        rows=schema.rows(["hours_per_week"]),
        target=Target(epsilon, 0.0),
        release=Expectations("mean"),
        num_steps=60,
        guarantee="run",
        bookkeeping=Bookkeeping(
            Ledger("ledger.db"), "adult", "the mean week", known_by=data_marks(table).known_by
        ),
    )
    mcmc.run(**columns)
    found = cast("ReleasedExpectations", mcmc.released)["mean"]
    noise = 0.0 if found.noise_sd is None else float(found.noise_sd)
    return (
        f"The mean working week: {float(found.value):.2f} hours, with Laplace noise of sd "
        f"{noise:.2f}, for ε = {epsilon:g} and δ = 0. States of a chain always need a δ."
    )


def _run(command: str) -> None:
    """A command in this process, shown as one would type it in the folder."""
    from private_mcmc.cli.main import app

    _say(f"$ private-mcmc {command}")
    app(shlex.split(command), standalone_mode=False, prog_name="private-mcmc")
    sys.stdout.flush()


def _rule(words: str) -> None:
    from rich.console import Console

    console = Console()
    console.print()
    console.rule(f"[bold]{words}")


def _say(words: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(words))


def _tamper() -> None:
    """A copy of the dossier that claims half the ε."""
    import shutil

    shutil.copytree("study", "changed")
    place = Path("changed") / "study.json"
    record = json.loads(place.read_text(encoding="utf-8"))
    _say(f"changed/study.json: epsilon {record['epsilon']:g} becomes {record['epsilon'] / 2:g}")
    record["epsilon"] /= 2
    place.write_text(json.dumps(record), encoding="utf-8")


def comparison(study: Study, table: Path) -> Report:
    """Released coefficients beside those of the same model and rows without privacy: curator's side only."""
    from private_mcmc.report import Interval, Note, Plot, Report, Rule, Table, floats, number

    private, exact = study.answers().summary(), without_privacy(study, table).summary()
    rows = []
    for ours, theirs in zip(private, exact, strict=True):
        off = (ours.mean - theirs.mean) / theirs.sd
        cells = (f"{number(one.mean)} ± {number(one.sd, 2)}" for one in (ours, theirs))
        rows.append((ours.name, *cells, f"{abs(off):.1f}", f"{ours.sd / theirs.sd:.1f}"))
    ends = [
        [[(at - theirs.mean) / theirs.sd for at in (one.low, one.mean, one.high)] for one in (ours, theirs)]
        for ours, theirs in zip(private, exact, strict=True)
    ]
    heights = [float(len(rows) - index) for index in range(len(rows))]
    intervals = tuple(
        Interval(
            floats(height + shift for height in heights),
            low=floats(pair[which][0] for pair in ends),
            middle=floats(pair[which][1] for pair in ends),
            high=floats(pair[which][2] for pair in ends),
            label=label,
            color=which,
        )
        for which, (label, shift) in enumerate((("private (released)", 0.14), ("without privacy", -0.14)))
    )
    picture = Plot(
        title="90 % intervals of the coefficients, private and not",
        x_label="(coefficient − its value without privacy) / its sd without privacy",
        y_label="",
        drawn=(*intervals, Rule("x", 0.0)),
        description="Private intervals are wider: they hold the noise that bought privacy.",
        y_ticks=tuple((height, one.name) for height, one in zip(heights, private, strict=True)),
        y_range=(0.4, len(rows) + 0.9),
    )
    columns = ("coefficient", "private ± sd", "without privacy ± sd", "off by (sds)", "ratio of sds")
    warning = Note(
        "Curator's side: computed from the rows without any protection. It is shown because this census "
        "extract is public; on private data it stays inside.",
        "bad",
    )
    return Report("Private and not", (warning, Table(columns, tuple(rows)), picture))


def without_privacy(study: Study, table: Path) -> Answers:
    """The same model's Normal approximation at its mode, found on the rows themselves by a trust region.

    Draws of NUTS where an sd of groups is estimated: the mode of such an sd and of its effects together is
    far from their means, and of their widths it says nothing.
    """
    import jax
    import numpy as np
    from scipy.optimize import minimize

    from private_mcmc.data.schema import Schema
    from private_mcmc.domains.columns import PRESENT
    from private_mcmc.domains.persons import grouped, identified
    from private_mcmc.dossier.record import texts
    from private_mcmc.inference.fitting import read_columns
    from private_mcmc.inference.question import question
    from private_mcmc.model import read

    schema = Schema.from_dict(texts(study.schema))
    asked = question(schema, study.formula, family=study.family, priors=study.priors)
    reading = read(asked.model, asked.rows, n=study.n, model_args=asked.public(study.n))
    found, unit = read_columns(table, asked.schema, asked), asked.rows.unit
    if unit is not None:
        codes = identified(unit.name, found.pop(unit.name))
        found = grouped(found, codes, study.n, unit.rows)
    there = np.asarray(found.pop(PRESENT, np.ones(len(next(iter(found.values())))))) > 0
    with jax.enable_x64(True):
        # As a run has them: a row that a person lacks has the derivative of a possible one, times zero.
        columns = reading.rows.project({name: each[there] for name, each in found.items()})

        # Rows are arguments, so that they are no constants of compiled programs.
        def potential(theta: jax.Array, columns: dict[str, jax.Array]) -> jax.Array:
            losses = jax.vmap(reading.row_loss, (None, 0))(theta, columns)
            return reading.neg_log_prior(theta) + losses.sum()

        slope, hessian = jax.jit(jax.value_and_grad(potential)), jax.jit(jax.hessian(potential))
        # Not from 0, where NumPyro's densities by logits have another slope than anywhere near.
        best = minimize(slope, np.full(reading.dim, 1e-3), (columns,), "trust-exact", jac=True, hess=hessian)
        mode, curvature = best.x, np.asarray(hessian(best.x, columns))
        off = float(best.jac @ np.linalg.solve(curvature, best.jac))
        if not (np.linalg.eigvalsh(curvature)[0] > 0 and off < _OFF):
            raise NotYetSupported("the mode of the posterior without privacy was not found.")
        covariance = np.linalg.inv(curvature)
        if reading.own is None and any(site.name.startswith("sd(") for site in reading.sites):
            found_draws = _by_nuts(partial(potential, columns=columns), mode, covariance)
        else:
            random = np.random.default_rng(0)
            found_draws = random.multivariate_normal(mode, covariance, size=_DRAWS)
        named = jax.jit(jax.vmap(reading.constrain))(found_draws)
    draws: dict[str, Array] = {name: np.asarray(values) for name, values in named.items()}
    return replace(study.answers(), draws=draws)


def _by_nuts(potential: Callable[..., jax.Array], mode: Array, covariance: Array) -> Array:
    """Draws ``(draws, p)`` of two chains from the mode, with the metric of the curvature there."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from numpyro.diagnostics import split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    kernel = NUTS(potential_fn=potential, dense_mass=True, inverse_mass_matrix=jnp.asarray(covariance))
    chains = MCMC(
        kernel,
        num_warmup=_DRAWS // 4,
        num_samples=_DRAWS // 2,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    chains.run(jax.random.key(0), init_params=jnp.stack([mode, mode]))
    draws = np.asarray(chains.get_samples(group_by_chain=True), dtype=np.float64)
    if not np.max(split_gelman_rubin(draws)) < _MIXED:
        raise NotYetSupported("chains of the posterior without privacy do not agree.")
    return draws.reshape(-1, draws.shape[-1])
