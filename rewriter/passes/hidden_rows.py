"""Whether the attention mask hides the rows of a cache that are not filled yet.

A cache of fixed size whose newest rows come last begins with rows that hold nothing. They count
for nothing only where the mask of the model reaches every attention that sees them, and where
positions do not follow from the length of the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from rewriter.cache_layout import Alignment
from rewriter.nodes import constant, op_of
from rewriter.passes.added_mask import MASK, lacks_mask
from rewriter.passes.caches import Cache, NoCache, caches, is_past
from rewriter.passes.origins import SHAPES, Origins
from rewriter.passes.row_numbers import TOKENS, check_comparisons, check_positions

_LAYOUT = frozenset({
    "Cast", "DequantizeLinear", "Expand", "Identity", "QuantizeLinear", "Reshape", "Squeeze",
    "Transpose", "Unsqueeze",
})  # fmt: skip
_ELEMENTWISE = _LAYOUT | {"Add", "Concat", "Div", "Max", "Min", "Mul", "Sub", "Tanh", "Where"}
_BEHIND = _LAYOUT | {"Slice", "Where", "Mul", "Div"}
"""What may stand between a softmax and the product with the values."""
_MASKS: dict[str, tuple[int, ...]] = {
    "Attention": (3,),
    "com.microsoft::MultiHeadAttention": (4, 5),
}
"""Which inputs of an attention are masks."""
_CAUSAL = {"Attention": "is_causal", "com.microsoft::MultiHeadAttention": "unidirectional"}


def fixed_alignment(model: ir.Model) -> Alignment:
    """Where the caches of a model would hold their tokens if they had a fixed size.

    Raises:
        NoCache: they cannot have one.
    """
    found = caches(model)
    growing = [cache for cache in found if cache.kind == "growing"]
    if not growing:
        return "left"
    other = next((cache for cache in found if cache.kind != "growing"), None)
    if other is not None:
        raise NoCache(
            f"the cache '{other.name}' is a buffer, and '{growing[0].name}' grows; one mask does "
            "not serve both"
        )
    lost = next((cache for cache in growing if cache.present is None), None)
    if lost is not None:
        raise NoCache(f"no output holds the cache '{lost.name}' with its new rows")
    rows = HiddenRows(model, growing)
    check_positions(model, Origins())
    if not lacks_mask(model, growing):
        rows.check_masks()
    return "right"


@dataclass(frozen=True, slots=True)
class Masked:
    """One place where the mask is applied to scores.

    Attributes:
        node: an Add or a Where, or an attention with a mask.
        index: which of its inputs the mask is.
        softmax: what the scores go into, where it is a node of its own.
    """

    node: ir.Node
    index: int
    softmax: ir.Node | None = None


@dataclass(slots=True)
class HiddenRows:
    """The attentions of a model that see rows of growing caches.

    Args:
        model: before its dims are fixed, or after.
        caches: all of them.
    """

    model: ir.Model
    caches: list[Cache]
    _origins: Origins = field(default_factory=Origins)

    def check_masks(self) -> None:
        """Refuse a model that would read rows that are not filled.

        Raises:
            NoCache: no mask reaches an attention, or one that counts rows.
        """
        mask = next((v for v in self.model.graph.inputs if v.name == MASK), None)
        if mask is None or mask.shape is None or mask.shape.rank() != 2:
            shown = "no attention_mask" if mask is None else f"an attention_mask of {mask.shape}"
            raise NoCache(
                f"the model has {shown}, and its caches grow; one of (batch, past + seq) has to "
                "hide the rows that are not filled yet"
            )
        for masked in self.masks():
            check_comparisons(masked.node.inputs[masked.index], self._origins)

    def masks(self) -> Iterator[Masked]:
        """Where the mask is applied to scores.

        Raises:
            NoCache: an attention that sees a cache has none.
        """
        done: set[ir.Node] = set()
        for cache in self.caches:
            for node, _ in cache.uses:
                if op_of(node) == "Concat":
                    readers = self._readers(node.outputs[0], cache)
                else:
                    readers = iter([node])
                for reader in readers:
                    if reader not in done:
                        done.add(reader)
                        given = self._given if op_of(reader) in _MASKS else self._applied
                        yield from given(reader, cache)

    def _readers(self, rows: ir.Value, cache: Cache) -> Iterator[ir.Node]:
        """Attentions, and products of queries with the rows of a cache.

        The rows are values of what else reads them, and need no mask there.
        """
        waiting, seen = [rows], set[ir.Value]()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            for node, at in value.uses():
                op = op_of(node)
                if op in SHAPES:
                    continue
                if op in _MASKS and at in {1, 2}:
                    _require_no_causal(node, cache)
                    yield node
                elif op in {"MatMul", "Einsum"}:
                    other = node.inputs[1 - at]
                    if other is None or not _is_weights(other):
                        yield node
                elif (op in _LAYOUT and at == 0) or (op in {"Mul", "Div"} and _scaled(node, at)):
                    waiting.append(node.outputs[0])
                else:
                    raise NoCache(
                        f"rows of the cache '{cache.name}' are read by {op} '{node.name}', of "
                        "which it is not known that a mask hides those that are not filled yet"
                    )

    def _applied(self, product: ir.Node, cache: Cache) -> Iterator[Masked]:
        """Where the mask is applied on the way from a product to its softmax."""
        found: list[tuple[ir.Node, int]] = []
        softmax: ir.Node | None = None
        waiting, seen = [product.outputs[0]], set[ir.Value]()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            for node, _ in value.uses():
                op = op_of(node)
                if op == "Softmax":
                    softmax = node
                elif op in _ELEMENTWISE:
                    masks = (i for i, v in enumerate(node.inputs) if v and self._is_mask(v))
                    found += [(node, i) for i in masks if op in {"Add", "Where"}]
                    waiting.append(node.outputs[0])
                elif op not in SHAPES:
                    raise NoCache(
                        f"scores of the cache '{cache.name}' go into {op} '{node.name}', and not "
                        "through a mask into a softmax"
                    )
        if softmax is None or not found:
            raise NoCache(
                f"no mask reaches the attention of the cache '{cache.name}' (at '{product.name}')"
                "; it would read rows that are not filled yet"
            )
        yield from (Masked(node, index, softmax) for node, index in found)

    def _given(self, node: ir.Node, cache: Cache) -> Iterator[Masked]:
        """The masks of an attention."""
        masks = [
            Masked(node, i)
            for i in _MASKS[op_of(node)]
            if i < len(node.inputs) and (v := node.inputs[i]) is not None and self._is_mask(v)
        ]
        if not masks:
            raise NoCache(
                f"no mask reaches {op_of(node)} '{node.name}', which sees the cache "
                f"'{cache.name}'; it would read rows that are not filled yet"
            )
        yield from masks

    def _is_mask(self, value: ir.Value) -> bool:
        """Whether a value follows from the attention mask, and from no token."""
        names = self._origins.numbers(value)
        return MASK in names and not any(name in TOKENS or is_past(name) for name in names)


def _require_no_causal(node: ir.Node, cache: Cache) -> None:
    """Without a past of its own an attention counts from the first key."""
    name = _CAUSAL[op_of(node)]
    attribute = node.attributes.get(name)
    if attribute is not None and attribute.as_int():
        raise NoCache(
            f"{op_of(node)} '{node.name}' has {name} and no past of its own, so that it counts "
            f"from the first row of the cache '{cache.name}', filled or not"
        )


def _scaled(node: ir.Node, at: int) -> bool:
    return constant(node.inputs[1 - at]) is not None


def _is_weights(value: ir.Value) -> bool:
    """Whether a value is what a softmax gives."""
    waiting, seen = [value], set[ir.Value]()
    while waiting:
        one = waiting.pop()
        node = one.producer()
        if one in seen or node is None:
            continue
        seen.add(one)
        if node.op_type == "Softmax":
            return True
        if op_of(node) in _BEHIND:
            waiting += [v for v in node.inputs if v is not None]
    return False
