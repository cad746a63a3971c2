"""Benchmarks: run as scripts from the repository's root; none of this is in the wheel."""
