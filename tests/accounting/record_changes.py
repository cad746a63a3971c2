"""Every change of one field of a statement's record, and which of them leave a true statement."""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from private_mcmc import accounting as acc
from private_mcmc.accounting.statement import RULES
from tests.accounting.oracle.verify import agrees

WORDS: dict[str, tuple[str, ...]] = {
    "adjacency": ("replace_one", "add_remove", "zero_out"),
    "rule": tuple(RULES),
    "kind": ("gaussian", "pure", "points", "sampled", "product"),
    "pair": ("add_remove", "replace_one", "other"),
    "release": ("last", "path"),
}
SMALLER = (
    {"kind": "gaussian", "m": 0.0},
    {"kind": "gaussian", "m": 1e-3},
    {"kind": "pure", "level": 0.0},
    {"kind": "points", "points": [[0.0, 0.0]]},
)


@dataclass(frozen=True)
class Change:
    """One change: where, what was done, and the record after it."""

    path: tuple[Any, ...]
    done: str
    record: Any

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.done}"


def changes(record: Mapping[str, Any]) -> Iterator[Change]:
    """Every one of them; of long lists the entries at both ends and in the middle."""
    for path, value in _nodes(record):
        for done, other in _others(path, value):
            if type(other) is type(value) and other == value:
                continue
            yield Change(path, done, _with(record, path, other))


def _nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    if isinstance(value, Mapping):
        for name in value:
            yield from _nodes(value[name], (*path, name))
    elif isinstance(value, list):
        for index in _some(value):
            yield from _nodes(value[index], (*path, index))


def _some(values: list[Any]) -> list[int]:
    return sorted({0, len(values) // 2, len(values) - 1}) if len(values) > 3 else list(range(len(values)))


def _with(record: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    other = copy.deepcopy(record)
    node = other
    for name in path[:-1]:
        node = node[name]
    node[path[-1]] = value
    return other


def _others(path: tuple[Any, ...], value: Any) -> Iterator[tuple[str, Any]]:
    """What may stand in the place of ``value``."""
    if isinstance(value, bool):
        yield from (("turned", not value), ("none", None), ("a word", "yes"), ("a number", float(value)))
    elif isinstance(value, (int, float)):
        yield from _numbers(value)
    elif isinstance(value, str):
        name = next((part for part in reversed(path) if isinstance(part, str)), "")
        known = WORDS.get(name, (value + " perhaps", "nothing at all"))
        yield from ((f"{other!r}", other) for other in ("", " ", *known) if other != value)
        yield from (("a number", 1.0), ("none", None), ("a list", [value]))
    elif value is None:
        yield from (("a word", "some"), ("a number", 1.0), ("a list", []))
    elif isinstance(value, list):
        yield from _lists(path, value)
    elif isinstance(value, Mapping):
        for name in value:
            yield f"without {name}", {key: item for key, item in value.items() if key != name}
        yield from (("one field more", {**value, "extra": 1.0}), ("a list", [dict(value)]), ("none", None))


def _numbers(value: float) -> Iterator[tuple[str, Any]]:
    for factor in (0.5, 0.99, 1 - 1e-6, 1.01, 2, -1):
        scaled = value * factor
        yield f"times {factor}", round(scaled) if isinstance(value, int) else scaled
        if isinstance(value, int) and scaled != round(scaled):
            yield f"times {factor}, not whole", scaled
    if isinstance(value, int):
        yield from (("one less", value - 1), ("one more", value + 1), ("huge", 10**30), ("too huge", 10**400))
    yield from (("nan", math.nan), ("inf", "inf"), ("-inf", -math.inf), ("zero", 0), ("huge", 1e300))
    yield from (("tiny", 1e-300), ("true", True), ("a word", "1"), ("none", None), ("a list", [value]))


def _lists(path: tuple[Any, ...], values: list[Any]) -> Iterator[tuple[str, Any]]:
    for index in _some(values):
        yield f"without entry {index}", values[:index] + values[index + 1 :]
        yield f"entry {index} twice", [*values[: index + 1], *values[index:]]
    yield from (("empty", []), ("none", None), ("a number", 1.0), ("reversed", values[::-1]))
    yield from (("a record", {}), ("a word", "list"), ("one entry more", [*values, "extra"]))
    if path and path[-1] == "curves":
        yield from ((f"a smaller curve {curve}", [*values, curve]) for curve in SMALLER)
        yield from ((f"only a smaller curve {curve}", [curve]) for curve in SMALLER)
    if path and path[-1] == "parts":
        # A part that has nothing to do with the rule.
        yield (
            "one part more",
            [*values, acc.laplace(0.1, adjacency="replace_one", sensitivity=0.1, scale=1.0).to_dict()],
        )


def why_true(before: Mapping[str, Any], change: Change) -> str | None:
    """Why the statement is still true though ``verify`` accepts it; ``None`` where nothing says so.

    Both records are of the same mechanism. None of these reasons asks the accountant.
    """
    path, after = change.path, change.record
    if path[:1] == ("parts",) and len(path) > 1:
        # What the whole claims is unchanged, and so is what the part claims or what that follows from.
        part = Change(path[2:], change.done, after["parts"][path[1]])
        return why_true(before["parts"][path[1]], part)
    if after["adjacency"] != before["adjacency"]:
        return None
    return (
        _provenance(path)
        or _same_parts(path, before, after)
        or _after_the_last_release(path, after)
        or _same_by_oracle(path, after)
    )


def _provenance(path: tuple[Any, ...]) -> str | None:
    """Nothing is derived from these; a name that two parts share is refused."""
    return "the run's identity only keeps it from being counted twice" if path == ("mechanism",) else None


def _same_parts(path: tuple[Any, ...], before: Any, after: Any) -> str | None:
    if path != ("parts",):
        return None
    if before["argument"]["rule"] == "adaptive" and all(part in before["parts"] for part in after["parts"]):
        return "the claim is the budget, whichever stages were bought from it"
    if sorted(map(str, before["parts"])) == sorted(map(str, after["parts"])):
        return "the same parts in another order"
    return None


def _after_the_last_release(path: tuple[Any, ...], after: Any) -> str | None:
    if path != ("argument", "constants", "num_steps"):
        return None
    released = after["argument"]["constants"].get("release")
    if isinstance(released, list) and released[-1] <= after["argument"]["constants"]["num_steps"]:
        return "steps after the last released state are not seen"
    return None


def _same_by_oracle(path: tuple[Any, ...], after: Any) -> str | None:
    """The second derivation gives these very curves for the changed constants."""
    if path[:2] == ("argument", "constants") and agrees(after):
        return "the oracle gives these very curves for the changed constants"
    return None
