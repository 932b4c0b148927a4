"""The forms of Attention that are compared with an oracle."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.attention import CAUSAL, DEAD, LOWEST, Case

KINDS: dict[str, str | float] = {"bool": "bool", "float": "float", "-inf": -np.inf, "-1e9": -1e9}
MASKS = [
    Case(f"{kind} mask of {shape}{', constant' * constant}", mask=mask, mask_shape=shape,
         constant=constant, oracle=by)
    for kind, mask in KINDS.items()
    for shape, by in {
        (3, 5): "ort", (4, 3, 5): "ort", (1, 3, 5): "ort", (2, 1, 3, 5): "ort",
        (2, 4, 3, 5): "ort", (1, 1, 3, 5): "ort",
        # ORT wants every row of the mask, and rank 2 to 4
        (5,): "reference", (1, 5): "reference", (4, 1, 5): "reference",
        (2, 1, 1, 5): "reference", (2, 4, 1, 5): "reference",
        # and as many columns as there are keys
        (3, 4): "reference", (2, 1, 3, 3): "reference", (4, 1, 2): "reference",
    }.items()
    for constant in (False, True)
]  # fmt: skip
FORMS: dict[str, dict[str, Any]] = {
    "grouped heads": {},
    "one head a group": {"kv_heads": 4},
    "weights shown": {"scores": 3},
    "softcap": {"attributes": {"softcap": 2.0}},
}
EMPTY_ROWS = [
    Case(f"empty row, {mask} mask, {form}{', constant' * constant}", mask=mask, hide=DEAD,
         constant=constant, **more)
    for mask in ("bool", -np.inf, LOWEST)  # a row of the lowest float: ORT 0, the reference a mean
    for form, more in FORMS.items()
    for constant in (False, True)
]  # fmt: skip
WINDOWED: dict[str, dict[str, Any]] = {
    "alone": {},
    "past": {"past": 3, "present": True},
    "nonpad": {"nonpad": (4, 6)},
    "mask": {"mask": "bool", "mask_shape": (6, 6)},
}
STAGED: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"attributes": CAUSAL},
    "softcap and mask": {"attributes": {"softcap": 1.5}, "mask": "bool"},
    "softcap and float mask": {"attributes": {"softcap": 1.5}, "mask": "float"},
    "rank 3, past": {"attributes": CAUSAL, "rank": 3, "past": 2, "present": True},
    "nonpad": {"attributes": CAUSAL, "nonpad": (2, 5)},
}
CASES = [
    *(Case(f"opset {opset}", opset=opset) for opset in (23, 24, 25)),
    Case("one head a group", kv_heads=4),
    Case("one key head", kv_heads=1),
    Case("three groups", heads=6, kv_heads=2),
    Case("one sequence", batch=1),
    Case("one token", tokens=1),
    Case("rank 3", rank=3),
    Case("rank 3, one token", rank=3, tokens=1),
    Case("rank 3, one head a group", rank=3, kv_heads=4),
    Case("rank 3, more queries than keys", rank=3, tokens=7, keys=3),
    Case("rank 4 with head counts", {"q_num_heads": 4, "kv_num_heads": 2}),
    Case("scale", {"scale": 0.3}),
    Case("scale of one", {"scale": 1.0}),
    Case("softcap", {"softcap": 1.5}),
    Case("no softcap below 0", {"softcap": -2.0}),
    Case("causal, as many queries as keys", CAUSAL, tokens=5),
    Case("causal, fewer queries than keys", CAUSAL),
    Case("causal, more queries than keys", CAUSAL, tokens=7, keys=4),
    Case("causal, one key head", CAUSAL, tokens=5, kv_heads=1),
    Case("causal and softcap", {**CAUSAL, "softcap": 1.5}, tokens=5),
    Case("past", past=3, present=True),
    Case("past, causal", CAUSAL, past=3, keys=3, present=True),
    Case("past, causal, one token", CAUSAL, tokens=1, past=3, keys=1, present=True),
    Case("past, causal, fewer queries than new keys", CAUSAL, past=3, keys=5, present=True),
    Case("past, rank 3", CAUSAL, past=3, keys=3, rank=3, present=True),
    Case("past, no present", CAUSAL, past=3, keys=3, oracle="reference"),  # ORT wants presents
    Case("empty past", CAUSAL, past=0, keys=3, present=True),
    Case("present without past", CAUSAL, keys=3, present=True),
    Case("present without past, rank 3", keys=3, present=True, rank=3),
    Case("past and mask", CAUSAL, past=3, keys=3, present=True, mask="bool", mask_shape=(3, 6)),
    Case("past and short mask", CAUSAL, past=3, keys=3, mask="bool", oracle="reference"),
    *(
        Case(f"nonpad {what}{', causal' * causal}", {"is_causal": causal}, nonpad=n, constant=c)
        for causal in (0, 1)
        for what, n, c in (
            ("full", (5, 5), False),
            ("of two lengths", (5, 3), False),
            ("constant", (5, 3), True),
            ("shorter than the queries", (2, 4), False),
            ("shorter than the queries, constant", (2, 4), True),
            ("of one", (1, 5), False),
            ("none", (0, 5), False),
        )
    ),
    Case("nonpad, one token", CAUSAL, tokens=1, nonpad=(2, 5)),
    Case("nonpad, one token, not causal", tokens=1, nonpad=(2, 5)),
    Case("nonpad and bool mask", CAUSAL, nonpad=(3, 5), mask="bool"),
    Case("nonpad and constant bool mask", CAUSAL, nonpad=(3, 5), mask="bool", constant=True),
    Case("nonpad and float mask", nonpad=(3, 5), mask="float"),
    Case("nonpad and short mask", nonpad=(3, 4), mask="float", mask_shape=(3, 4),
         oracle="reference"),
    Case("causal and bool mask", CAUSAL, mask="bool"),
    Case("causal and bool mask that leave nothing", CAUSAL, mask="bool", hide=((0, 0),)),
    Case("causal and -inf mask that leave nothing", CAUSAL, mask=-np.inf, hide=((0, 0),)),
    Case("causal and constant mask that leave nothing", CAUSAL, mask="bool", hide=((0, 0),),
         constant=True),
    Case("causal and float mask a head", CAUSAL, mask="float", mask_shape=(2, 4, 3, 5)),
    *(
        Case(f"causal and {mask} mask of {shape}", CAUSAL, mask=mask, mask_shape=shape,
             oracle="written out")  # the reference's triangle has as many rows as the mask
        for mask in ("bool", "float", -np.inf)
        for shape in ((5,), (1, 5), (4, 1, 5), (2, 1, 1, 5), (3, 4), (4,), (2, 4, 1, 3))
    ),
    Case("mask that hides nothing", mask="bool", hide=(), constant=True),
    *(
        # as BERT's: a number, no mask; the sum with it loses bits of the scores in float32
        Case(f"row of {mask:g}{', constant' * constant}{', softcap' * bool(attributes)}",
             attributes, mask=mask, hide=DEAD,
             constant=constant, oracle="raised")
        for mask in (-70.0, -1000.0, -1e4)
        for constant in (False, True)
        for attributes in ({}, {"softcap": 2.0})
    ),
    *(
        # the scores are lost in float32: equal weights
        Case(f"row of {mask:g}, constant, {form}", mask=mask, hide=DEAD, constant=True, **more)
        for mask in (-1e9, -3e38)
        for form, more in FORMS.items()
    ),
    *(
        Case(f"constant row of {mask:g} that is causal", CAUSAL, mask=mask, constant=True,
             hide=((0, 0), (2, 0), (2, 1), (2, 2)))
        for mask in (-1e9, -np.inf, LOWEST)
    ),
    Case("integer mask", mask="int64"),
    Case("integer mask, constant", mask="int64", constant=True),
    *(
        Case(f"window {left}, {right}{', causal' * causal}, {where}",
             {"left_window_size": left, "right_window_size": right, "is_causal": causal},
             tokens=6, keys=6, opset=25, **more)
        for left, right in ((2, -1), (-1, 1), (2, 1), (0, 0), (9, 9))
        for causal in (0, 1)
        for where, more in WINDOWED.items()
    ),
    Case("window that leaves late queries nothing", {"left_window_size": 1}, tokens=9, keys=4,
         opset=25),
    *(
        Case(f"scores of stage {mode}, {what}", scores=mode, **more)
        for mode in range(4)
        for what, more in STAGED.items()
    ),
    Case("softmax in float", {"softmax_precision": 1}),
    Case("softmax in double", {"softmax_precision": 11}),
    *MASKS,
    *EMPTY_ROWS,
]  # fmt: skip
