"""Measuring a runtime: small models of every form of the table, and what became of them."""
