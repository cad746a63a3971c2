"""Room for compiled programs: XLA maps each of them into memory, and a process may have so many mappings."""

from __future__ import annotations

from pathlib import Path

from private_mcmc.errors import OutputError

# A fit compiles some two hundred programs in 2,000 mappings; Linux allows a process 65,530.
_SHARE_KEPT, _NEEDED = 0.25, 4_000
_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")


def mappings() -> tuple[int, int] | None:
    """Mappings of this process, and how many it may have; ``None`` where the system does not say."""
    try:
        with _MAPS.open("rb") as lines:
            return sum(1 for _ in lines), int(_LIMIT.read_text())
    except (OSError, ValueError):
        return None


def make_room() -> None:
    """Forget compiled programs where there are many, which bounds what a process of many fits holds.

    Called before anything is charged: a compiler that finds no room ends the process.

    Raises:
        OutputError: where too few mappings are left all the same.
    """
    found = mappings()
    if found is None or found[0] < _SHARE_KEPT * found[1]:
        return
    import jax  # here: commands need none of it for their help

    jax.clear_caches()  # type: ignore[no-untyped-call]
    found = mappings()
    if found is not None and found[1] - found[0] < _NEEDED:
        raise OutputError(
            f"this process has {found[0]:,} memory mappings and may have {found[1]:,}: too few are left to "
            "compile a run. Nothing was charged. Run it in a new process, or raise vm.max_map_count."
        )
