"""Draws as ArviZ and NetCDF have them: a tree of groups, each with the dimensions chain and draw."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import arviz
    import xarray

    Exported: TypeAlias = "xarray.DataTree | arviz.InferenceData"


def draws_tree(
    posterior: Mapping[str, np.ndarray],
    attributes: Mapping[str, str],
    *,
    warmup: Mapping[str, np.ndarray] | None = None,
) -> xarray.DataTree:
    """Arrays ``(chains, draws, …)`` by name, warm-up in its own group; every group has the ``attributes``.

    A slash in a name, as in ``I(age / 10)``, becomes a division slash (U+2215): a tree takes no other.
    """
    from arviz_base import from_dict

    groups = {"posterior": posterior} | ({"warmup_posterior": warmup} if warmup else {})
    tree = from_dict(
        {group: {_named(name): each for name, each in sites.items()} for group, sites in groups.items()},
        save_warmup=True,
        check_conventions=False,
    )
    for group in tree.subtree:
        group.attrs = dict(attributes)  # and no time of making: equal draws are equal files
    return tree


def for_arviz(tree: xarray.DataTree) -> Exported:
    """What the installed ArviZ expects: the tree itself from ArviZ 1 on, ``InferenceData`` below."""
    try:
        before = int(version("arviz").partition(".")[0]) < 1
    except PackageNotFoundError:
        before = False
    return _inference_data(tree) if before else tree


def _inference_data(tree: xarray.DataTree) -> Any:
    import warnings

    with warnings.catch_warnings():
        # It announces its next major version once a day, on import.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz.InferenceData.from_datatree(tree)


def _named(name: str) -> str:
    return name.replace("/", "\u2215")
