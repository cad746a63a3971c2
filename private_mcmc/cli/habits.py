"""A command line that cannot be read is told in one line; habits of other programs get what to do instead."""

from __future__ import annotations

import re
from typing import Any

_PLANNED = "steps, chains and warm-up follow from the plan, whose noise is what protects people: leave it out"
_SETTINGS = (
    "chains num-chains cores iter num-samples samples draws num-warmup warmup burn-in tune thin adapt-delta "
    "target-accept max-treedepth sampler algorithm nuts step-size num-steps"
)
_HABITS = {
    **dict.fromkeys(_SETTINGS.split(), _PLANNED),
    **dict.fromkeys(
        ("seed", "random-seed", "rng-key"),
        "noise comes from the operating system, since whoever knows a seed can take it away: leave it out",
    ),
    "link": "a family has one link, which the page From a table to an answer names: leave it out",
    "weights": "weights are not taken: how much a row counts would be private",
    "eps": "ε of the target is --epsilon",
    **dict.fromkeys(("output", "output-dir", "save"), "the dossier's folder is --out"),
    **dict.fromkeys(("data", "table", "csv"), "the table is named first, without an option"),
}
_ANSWERED = re.compile(r" (fit|run|plan)$")


def in_a_line(error: Any) -> str:
    """What is wrong with a command line, and the remedy."""
    words = error.format_message().replace("\n", " ").strip().rstrip(".")
    end = "" if words.endswith("?") else "."
    path = "private-mcmc" if error.ctx is None else error.ctx.command_path
    habit = _HABITS.get(str(getattr(error, "option_name", "")).lstrip("-").replace("_", "-"))
    if habit is not None and _ANSWERED.search(path):
        # Without the options that are merely spelt alike.
        return f"{path}: {words.partition(' (Possible')[0]}: {habit}."
    if "extra argument" in words and _ANSWERED.search(path):
        return f"{path}: {words}{end} A formula stands in quotes: --formula 'death ~ age + sex'."
    return f"{path}: {words}{end} What it takes: {path} --help."
