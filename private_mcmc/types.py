"""Types of what Python and JSON leave open: models, their public arguments, records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# A NumPyro model: called for its sample statements, whatever it returns.
Model = Callable[..., object]
PublicArguments = Mapping[str, object]
# What JSON can hold, by name: made, and read.
Record = dict[str, Any]
Fields = Mapping[str, Any]
