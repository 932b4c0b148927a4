"""Builders that rules share. Layout letters: B batch, S new tokens, T total length, C capacity,
Hq query heads, Hk key/value heads, G = Hq / Hk, D head size, R rotated part of D.
"""
