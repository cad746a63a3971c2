"""The soundness sweep: every claim of the library attacked."""
