"""A model being written: its columns, its statements so far, and the productions taken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

# A function of the draft, or a text for ``Draft.fill``.
Production = Callable[["Draft"], str] | str
# What ``$name`` stands for in such texts.
PARTS: dict[str, Callable[[Draft], str]] = {
    "loc": lambda d: d.pick("0", "0.0", "0.3", "-0.2"),
    "scale": lambda d: d.pick("1", "0.1", "0.5", "1.0", "2.0", "0.3"),
    "shape": lambda d: d.pick("0.7", "1.5", "2.0", "3.0"),
    "p": lambda d: str(d.size),
    "q": lambda d: str(max(d.size, 2)),
}
_PART, _LINE = re.compile(r"\$(\w+)|\$\(([^()]*)\)"), re.compile(r"(\w+) ([~=:]) (.*)")


@dataclass
class Draft:
    """What the productions write into.

    Attributes:
        seed: chooses the first production of every table, so that successive seeds go through all of them.
        rng: makes every other choice.
        size: ``p``, the number of coefficients of a predictor.
        wild: how many unusual productions may still be taken: with many in one model, few would be read.
        outcome: the likelihood, where it is not taken by turns.
        columns: a domain in Python for every column of a row.
        lines: statements of the model so far.
        used: productions taken.
    """

    seed: int
    size: int
    wild: int
    outcome: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    names: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        # Three models in eight have an outcome of their own and take no turn.
        self.turn = 5 * (self.seed // 8) + (0, 1, 2, 3, 3, 4, 4, 5)[self.seed % 8]
        self._begun: set[int] = set()

    def take(self, table: Mapping[str, Production], name: str | None = None) -> str:
        """One production of the table, by name or by turns, then by chance."""
        if name is None:
            index = self.turn + self.turn // len(table)
            first = id(table) not in self._begun
            name = list(table)[index % len(table) if first else int(self.rng.integers(len(table)))]
            self._begun.add(id(table))
        self.used.append(name)
        made = table[name]
        return self.fill(made) if isinstance(made, str) else made(self)

    def fill(self, text: str, **own: str) -> str:
        """``text`` with a choice for every ``$(one|other)``, and for every ``$name`` a part, made anew.

        Lines before the last make names of this text's own, and so may the last one, whose name is the value:
        ``name ~ law`` a latent site, ``name = value`` a variable, ``name : value`` what is not written down.
        """
        value = ""
        for line in text.splitlines():
            found = _LINE.fullmatch(line)
            name, kind, made = found.groups() if found else ("", "", line)
            value = _PART.sub(lambda part: self._part(own, *part.groups()), made)
            if kind == "~":
                value = self.latent(name, value)
            elif kind == "=":
                value = self.let(name, value)
            own[name] = value
        return value

    def _part(self, own: Mapping[str, str], name: str | None, options: str | None) -> str:
        if options is not None:
            return self.pick(*options.split("|"))
        return own[name] if name in own else PARTS[name](self)

    def pick(self, *options: str) -> str:
        return str(self.rng.choice(options))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def write(self, *lines: str) -> None:
        self.lines += lines

    def let(self, stem: str, value: str) -> str:
        """A new variable with a value."""
        name = self.fresh(stem)
        self.write(f"{name} = {value}")
        return name

    def latent(self, stem: str, distribution: str) -> str:
        """A new latent site."""
        name = self.fresh(stem)
        self.write(f'{name} = numpyro.sample("{name}", {distribution})')
        return name

    def column(self, name: str, domain: str) -> str:
        """A column of the rows; the same name gives the same column."""
        self.columns.setdefault(name, domain)
        return name

    @contextmanager
    def sized(self, size: int) -> Iterator[None]:
        """Coefficients have this length meanwhile."""
        whole, self.size = self.size, size
        yield
        self.size = whole
