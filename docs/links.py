"""A hook of mkdocs: links from pages to files outside ``docs/`` are for a checkout, and plain words here."""

import re
from typing import Any

_OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:private_mcmc|tests|benchmarks|examples|[\w.]+\.(?:toml|md))[^)]*\)"
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page without such links, unless they lead to another page."""
    if page.file.src_uri.startswith("decisions/"):
        return markdown
    return _OUTSIDE.sub(r"\1", markdown)
