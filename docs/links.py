"""A hook of mkdocs: links from pages to files outside ``docs/`` are for a checkout, and plain words here."""

import re
from typing import Any

import griffe

_OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:private_mcmc|tests|benchmarks|examples|[\w.]+\.(?:toml|md))[^)]*\)"
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with such links as plain words."""
    return _OUTSIDE.sub(r"\1", markdown)


class Examples(griffe.Extension):
    """``Example:`` in docstrings, which doctests know, as the section ``Examples:`` of the Google style."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section of one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
