"""Fused ops that are further from integers than the units that they are made of.

HTP computes some quantized units in halves, whose 11 bits are up to 2^4 steps of 16 bits, and
others in integers, within a step or two. Where a fused op is of the first kind and a rule writes it
out in units of the second, that is done before activations are quantized.
"""

from __future__ import annotations

from dataclasses import replace

from capabilities import Form, Row, Target, Verdict, VersionRange

_WRITTEN_OUT = {
    "RotaryEmbedding": ("any", "its unit is in halves, 13 steps of 16 bits off; its sums are not"),
    "Gelu": ("approximate=tanh", "its unit is in halves, 29 steps of 16 bits off; its parts 3"),
}
"""Forms of ops, with what was measured on QNN: Gelu in tests/units.py on 2.3 to 2.7, rotary
embedding in the shared llama on 2.7 (its products and sum are 3 off in tests/units.py)."""


def in_integers(target: Target) -> Target:
    """The target as a graph is lowered for that will have quantized activations.

    What a person has said of one of these ops stands.
    """
    said = {row.op for row in target.overrides}
    rows = [
        Row(
            op, Form(form), Verdict.ILLEGAL, VersionRange("*"), why, ("declared:--activations a16",)
        )
        for op, (form, why) in _WRITTEN_OUT.items()
        if op not in said
    ]
    return replace(target, overrides=(*target.overrides, *rows))
