"""Measuring a runtime: small models of every form of the table, and what became of them."""

PROBED = ("qnn", "openvino")
"""EPs whose runtime can be measured."""
