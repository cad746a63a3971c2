"""The papers' own bounds, laws and experiments; not part of the package."""
