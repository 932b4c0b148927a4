"""Greedy generation through a folder that was written: what a person sees before a device does."""
