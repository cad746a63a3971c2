"""Public declarations in a TOML file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from private_mcmc.errors import DeclarationError


def read_toml(path: str | Path) -> dict[str, Any]:
    """What a TOML file declares.

    Raises:
        DeclarationError: if it cannot be read. The message gives the line and never quotes it: a file of
            private rows may have been named by mistake.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise DeclarationError(f"{path}: not a TOML file (it is not text in UTF-8).") from None
    except (ValueError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f" (line {line[1]})" if line else ""
        raise DeclarationError(f"{path}: not a TOML file{where}.") from None
