"""Statements put together: composition, filters, groups, tests that may fail, release noise."""
