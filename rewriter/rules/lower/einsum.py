"""Einsum to Transpose, ReduceSum, Reshape and MatMul.

Every letter of two operands is one of: in both and the result (batch), in both and not the result
(summed by the product), in one of them and the result (rows, columns), in one only (summed at
once). More operands are taken two at a time, from the left. An ellipsis stands for letters of its
own. A letter twice in one operand (a diagonal) and dims of 1 that broadcast are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import axes, in_shape
from rewriter.site import Site
from rewriter.tape import Tape

_SPARE = "αβγδεζηθικλμνξοπρστυφχψω"


@dataclass(frozen=True, slots=True)
class _Operand:
    """A value with a letter for every axis."""

    value: ir.Value
    letters: str


def _terms(site: Site, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Letters of the operands and of the result, ellipses written out."""
    equation = str(site.attribute("equation")).replace(" ", "")
    given, arrow, result = equation.partition("->")
    terms = given.split(",")
    site.require(len(terms) == len(ranks), f"{equation} has another number of operands")
    extra = [
        rank - len(term.replace("...", "")) if "..." in term else 0
        for term, rank in zip(terms, ranks, strict=True)
    ]
    most = max(extra)
    site.require(all(e in {0, most} for e in extra), f"the ellipses of {equation} differ in rank")
    dots = _SPARE[:most]
    whole = [t.replace("...", dots) for t in terms]
    if not arrow:
        counted = "".join(whole)
        once = sorted({c for c in counted if counted.count(c) == 1 and c not in dots})
        result = dots + "".join(once)
    for term, rank in zip(whole, ranks, strict=True):
        site.require(len(term) == rank, f"{equation} does not fit an operand of rank {rank}")
        site.require(len(set(term)) == len(term), f"{equation} takes a diagonal")
    return whole, result.replace("...", dots)


@lowers(
    "Einsum", emits=("Identity", "MatMul", "Mul", "ReduceSum", "Reshape", "Transpose"), opset=13
)
def products_of_pairs(op: Tape, site: Site) -> ir.Value:
    """Products of two operands at a time, axes put where MatMul wants them."""
    values = [v for v in site.node.inputs if v is not None]
    site.ignore(*site.facts.inputs)
    kind = values[0].dtype
    floating = kind is not None and kind.is_floating_point()
    site.require(floating, f"products of {kind} are not handled")
    shapes = [site.shape(v, "an operand") for v in values]
    terms, result = _terms(site, [len(s) for s in shapes])
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            same = sizes.setdefault(letter, size) == size
            site.require(same, f"a dim of {size} against {sizes[letter]} broadcasts")
    rest = [_Operand(v, t) for v, t in zip(values, terms, strict=True)]
    while len(rest) > 1:
        first, second, *others = rest
        wanted = set(result).union(*(o.letters for o in others))
        rest = [_product(op, first, second, wanted, sizes, result), *others]
    last = _summed(op, rest[0], result)
    y = _arranged(op, last, result)
    return op.Identity(y) if y in values else y


def _product(
    op: Tape, a: _Operand, b: _Operand, wanted: Iterable[str], sizes: dict[str, int], result: str
) -> _Operand:
    """The sum over what is in both and not wanted any more."""
    kept = set(wanted)
    a, b = _summed(op, a, kept | set(b.letters)), _summed(op, b, kept | set(a.letters))
    order = result + a.letters + b.letters
    both = sorted(set(a.letters) & set(b.letters), key=order.index)
    batch = [c for c in both if c in kept]
    summed = [c for c in both if c not in kept]
    rows = sorted(set(a.letters) - set(both), key=order.index)
    columns = sorted(set(b.letters) - set(both), key=order.index)
    if not summed:
        every = "".join([*batch, *rows, *columns])
        left, right = (
            _shaped(op, o, [[c] if c in o.letters else [] for c in every], sizes) for o in (a, b)
        )
        return _Operand(op.Mul(left, right), every)
    if not rows and columns:  # a row against a matrix: the matrix first saves its transposition
        a, b, rows, columns = b, a, columns, rows
    free = not batch and len(rows) in {1, 2, 3}
    above = [[c] for c in rows] if free else [*_batches(batch), rows]
    left = _shaped(op, a, [*above, summed], sizes)
    right = _shaped(op, b, [*_batches(batch), summed, columns], sizes)
    y = op.MatMul(left, right)
    letters = "".join([*batch, *rows, *columns])
    return _Operand(in_shape(op, y, [sizes[c] for c in letters]), letters)


def _batches(batch: Sequence[str]) -> list[list[str]]:
    """Batch axes as they are up to two of them, else one: rank 5 products are wrong on HTP."""
    return [[c] for c in batch] if len(batch) <= 2 else [list(batch)]


def _shaped(
    op: Tape, operand: _Operand, groups: Sequence[Sequence[str]], sizes: dict[str, int]
) -> ir.Value:
    """An operand with one axis for every group of letters, of size 1 for an empty group."""
    letters = "".join("".join(group) for group in groups)
    value = _arranged(op, operand, letters)
    return in_shape(op, value, [math.prod(sizes[c] for c in group) for group in groups])


def _summed(op: Tape, operand: _Operand, kept: Iterable[str]) -> _Operand:
    """Without the letters that nobody wants."""
    wanted = set(kept)
    summed = [i for i, c in enumerate(operand.letters) if c not in wanted]
    if not summed:
        return operand
    value = op.ReduceSum(operand.value, axes(op, *summed), keepdims=0)
    return _Operand(value, "".join(c for c in operand.letters if c in wanted))


def _arranged(op: Tape, operand: _Operand, letters: str) -> ir.Value:
    perm = [operand.letters.index(c) for c in letters]
    ordered = all(i < j for i, j in pairwise(perm))
    return operand.value if ordered else op.Transpose(operand.value, perm=perm)
