"""A model being written: its columns, its statements so far, and the productions taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

Production = Callable[["Draft"], str]


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
        return table[name](self)

    def pick(self, *options: str) -> str:
        return str(self.rng.choice(options))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def loc(self) -> str:
        return self.pick("0", "0.0", "0.3", "-0.2")

    def scale(self) -> str:
        return self.pick("1", "0.1", "0.5", "1.0", "2.0", "0.3")

    def shape(self) -> str:
        return self.pick("0.7", "1.5", "2.0", "3.0")

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
