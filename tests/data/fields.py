"""Descriptors of fields, and schemas of them, in a line each."""

from private_mcmc import Schema


def number(name, low, high, kind="number", own=None, **more):
    """A field with a range; ``own`` is what Table Schema has no word for."""
    limits = {"minimum": str(low), "maximum": str(high)}
    return {"name": name, "type": kind, "constraints": limits, **_own(own), **more}


def levels(name, *values, own=None, **more):
    """A category."""
    return {"name": name, "constraints": {"enum": list(values)}, **_own(own), **more}


def flag(name, own=None, **more):
    """A boolean."""
    return {"name": name, "type": "boolean", **_own(own), **more}


def person(name, **more):
    """Identifiers of persons."""
    return {"name": name, "type": "string", "private_mcmc": {"role": "person"}, **more}


def _own(words):
    return {} if words is None else {"private_mcmc": words}


def schema(*fields, **whole):
    """A schema of these fields."""
    return Schema.from_dict({"fields": list(fields), **whole})
