"""Passes that establish a fact of the whole graph, a file per fact."""
