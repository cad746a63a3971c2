"""The command ``private-mcmc``: every capability of the library on files, from a shell."""

from private_mcmc.cli.main import main

__all__ = ["main"]
