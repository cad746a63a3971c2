"""Reports of the papers' experiments."""

from __future__ import annotations

import numpy as np

from private_mcmc.audit.experiments.hf_result import HFResult
from private_mcmc.audit.experiments.noise import NoiseResult
from private_mcmc.report import Facts, Line, Note, Plot, Plots, Report, Rule, Table, Verdict, floats, number

_BINS = 16
_LEAST_LOSS = 1e-4


def hf_report(result: HFResult) -> Report:
    """Lower bound, claim and accuracy by epoch."""
    experiment, epochs = result.experiment, result.epochs
    uppers = [result.upper(at) for at in epochs]
    numbers = floats(at.epoch for at in epochs)
    return Report(
        "SGLD attacked: LeNet5 on digit images",
        (
            _verdict(result),
            Facts(
                (
                    ("rows", experiment.num_rows),
                    ("weight of the likelihood", number(experiment.as_rows / experiment.num_rows)),
                    ("batches, of fixed size", experiment.batch_size),
                    ("learning rate of a row", experiment.learning_rate),
                    ("clip", "none" if experiment.clip is None else experiment.clip),
                    ("networks learned from, and as many counted on", 2 * experiment.models),
                    ("failure probability of each epoch's lower bound", experiment.failure_probability),
                    ("δ", experiment.delta),
                    ("the largest ε so many networks can prove", number(epochs[0].largest)),
                    ("the claim rests on", _theorem(result)),
                )
            ),
            Plots((_bounds(result, numbers, uppers), _learning(result, numbers))),
            Table(
                ("epoch", "ε at least", "ε at most", "accuracy", "p(label | row), without it", "with it"),
                tuple(
                    (at.epoch, number(at.epsilon_lower), number(upper), number(at.accuracy, 3),
                     number(at.without, 3), number(at.with_row, 3))
                    for at, upper in zip(epochs, uppers, strict=True)
                ),
                "Epoch by epoch",
            ),
        ),
    )  # fmt: skip


def _verdict(result: HFResult) -> Verdict:
    """The last epoch speaks: the largest of many bounds would need a smaller failure probability."""
    last = result.epochs[-1]
    line = f"after {last.epoch} epochs the attack proves ε ≥ {number(last.epsilon_lower)}"
    if result.experiment.clip is None:
        return Verdict("no claim", line, "unsure", ("without clipping nothing bounds what a row does",))
    claim = f"claimed: ε ≤ {number(result.upper(last))}"
    if result.sound:
        return Verdict("sound", line, "good", (claim, "no epoch's lower bound exceeds its claim"))
    return Verdict("claim refuted", line, "bad", (claim, "an epoch's lower bound exceeds its claim"))


def _theorem(result: HFResult) -> str:
    statement = result.epochs[-1].statement
    return "nothing" if statement is None else statement.argument.theorem


def _bounds(result: HFResult, numbers: tuple[float, ...], uppers: list[float]) -> Plot:
    lower = Line(
        numbers, floats(at.epsilon_lower for at in result.epochs), "proved by the attack", 1, marker=True
    )
    drawn: tuple[Line | Rule, ...] = (lower, Rule("y", result.epochs[0].largest, "most provable"))
    if np.isfinite(uppers).all():
        drawn = (*drawn, Line(numbers, floats(uppers), "claimed upper bound", 0, "dashed"))
    return Plot(
        "What is lost",
        "epochs of training",
        f"ε at δ = {number(result.experiment.delta)}",
        drawn,
        "Lower bound on ε of each epoch's network, and the claimed upper bound where there is one.",
    )


def _learning(result: HFResult, numbers: tuple[float, ...]) -> Plot:
    return Plot(
        "What is learned",
        "epochs of training",
        "probability",
        (
            Line(numbers, floats(at.accuracy for at in result.epochs), "accuracy on new images", 2),
            Line(numbers, floats(at.with_row for at in result.epochs), "the row's label, trained with it", 1),
            Line(
                numbers,
                floats(at.without for at in result.epochs),
                "the row's label, without it",
                0,
                "dashed",
            ),
        ),
        "Accuracy, and mean probability of the adversarial row's label with and without it in the data.",
        y_range=(0.0, 1.0),
    )


def noise_report(result: NoiseResult) -> Report:
    """Algorithm 1's numbers, losses, and histograms of the loss of the row left out."""
    experiment = result.experiment
    return Report(
        "Noise and batch sizes, after Borovykh, Kantas, Parpas, Pavliotis",
        (
            Note(
                "δ by Algorithm 1 is a heuristic: it is positive for two seeds on one data set, and bounds "
                "nothing. It orders settings of one experiment; it is never compared with a privacy claim.",
                "unsure",
            ),
            Facts(
                (
                    ("rows", experiment.num_rows),
                    ("hidden units", experiment.hidden),
                    ("steps", experiment.steps),
                    ("pairs of data sets × repeats", f"{experiment.pairs} × {experiment.repeats}"),
                    ("σ²", None if all(one.shape == "none" for one in result.found) else experiment.noise),
                )
            ),
            Table(
                ("setting", *(f"δ({at:g})" for at in experiment.epsilons), "worst loss", "mean loss", "gap"),
                tuple(
                    (one.name, *(number(delta, 3) for _, delta in one.deltas), number(one.worst_loss, 3),
                     number(one.mean_loss, 3), number(one.distance, 3))
                    for one in result.found
                ),
                "Heuristic δ(ε), losses, and how much worse the row left out fares (gap of mean losses)",
            ),
            Plots(tuple(_histogram(result, index) for index in range(len(result.found)))),
        ),
    )  # fmt: skip


def _histogram(result: NoiseResult, index: int) -> Plot:
    one = result.found[index]
    everything = [value for each in result.found for value in (*each.with_row, *each.without)]
    low, high = max(min(everything), _LEAST_LOSS), max(*everything, 2 * _LEAST_LOSS)
    edges = np.geomspace(low * 0.99, high * 1.01, _BINS + 1)

    def line(values: tuple[float, ...], name: str, color: int) -> Line:
        shares = np.histogram(np.maximum(values, low), edges)[0] / len(values)
        # A step at each edge.
        return Line(floats(np.repeat(edges, 2)[1:-1]), floats(np.repeat(shares, 2)), name, color, fill=True)

    return Plot(
        one.name,
        "loss of the row left out of D′",
        "share of runs",
        (line(one.with_row, "trained on D", 1), line(one.without, "trained on D′", 0)),
        "Histograms of the loss of one row over runs with and without it.",
        x_log=True,
    )
