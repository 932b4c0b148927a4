"""Fusions that raise a pattern to one portable op, a file per op they raise to."""
