"""Every symbolic dim becomes a number: asked for, derived, or listed as free.

A dim is named by the model's own symbol, by the input and axis it stands at (``input_ids:1``), or
by its role in a transformer (:data:`ROLES`). What weights, attributes and other dims determine is
derived: ``a + b`` symbols, the attention mask's length, the head size of a cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir
import onnx_shape_inference as inference

from rewriter.errors import BadInput
from rewriter.facts import dims_of, op_of, present
from rewriter.shapes import infer_model

ROLES: dict[str, tuple[str, int]] = {
    "batch": ("sequences in one call", 1),
    "seq": ("new tokens of one call: 1 to decode, more to read a prompt", 1),
    "past": ("length of the KV cache that comes in; 0 for none yet", 128),
    "total": ("length of the attention mask: past + seq, or past where the cache is a buffer", 129),
    "max": ("capacity of a cache that stays in place", 512),
}
"""What each role means, and a value to propose."""

DIMS = "rewriter.dims"
"""Key of the model's metadata that remembers the dims that were fixed."""

_PLACES: tuple[tuple[str, int, str], ...] = (
    (r"(input_ids|inputs_embeds|position_ids|token_type_ids)", 0, "batch"),
    (r"(input_ids|inputs_embeds|position_ids|token_type_ids)", 1, "seq"),
    (r"attention_mask", 0, "batch"),
    (r"attention_mask", 1, "total"),
    (r"past_key_values\.\d+\.(key|value)|past_(key|value)s?[._]\d+", 0, "batch"),
    (r"past_key_values\.\d+\.(key|value)|past_(key|value)s?[._]\d+", 2, "past"),
    (r"(key|value)_cache[._]\d+", 2, "max"),
)
_SYMBOLS = {
    "batch": {"batch", "batch_size", "N"},
    "seq": {"seq", "sequence_length", "seq_len", "seqlen", "sequence"},
    "past": {"past", "past_sequence_length", "past_seq_len", "past_length"},
    "total": {"total", "total_sequence_length", "total_seq_len", "total_length"},
    "max": {"max", "max_seq_len", "max_sequence_length", "max_length"},
}
_COMPUTING = frozenset({"batch", "seq", "total", "max"})
"""Roles whose dim is at least 1: with 0 there is nothing to compute (0 past is a first call)."""

_ENCODER_TOKENS = 128
"""Tokens to propose where there is no cache, so that a call holds a whole text."""


@dataclass(frozen=True, slots=True)
class FreeDim:
    """A dim that nobody gave and nothing determines.

    Attributes:
        name: what to call it in ``--dim``: its role, or its symbol where it has none.
        where: the first place it stands at.
        meaning: what it is, in words.
        proposal: a value that fits the others; ``None`` if it follows from theirs.
    """

    name: str
    where: str
    meaning: str
    proposal: int | None


class FreeDims(BadInput):
    """Dims are free and the target runs fixed shapes only; the message lists each.

    Attributes:
        free: the dims.
        command: a command line that fixes them, if whoever asks has one.
    """

    def __init__(self, ep: str, free: Iterable[FreeDim]) -> None:
        super().__init__(f"{ep} runs fixed shapes only, and these dims are free:")
        self.free = tuple(free)
        self.command = ""

    def lines(self) -> list[str]:
        """The message, which is one line per dim."""
        listed = [f"  {d.name}: {d.where}; {d.meaning}" for d in self.free]
        example = [f"for example: {self.command}"] if self.command else []
        return [*map(str, self.args), *listed, *example]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def words(self) -> list[str]:
        """Options that fix all of them, with the values proposed."""
        words: list[str] = []
        for dim in self.free:
            if dim.proposal is not None:
                words += ["--dim", f"{dim.name}={dim.proposal}"]
        return words


@dataclass
class Dims:
    """What became of the dims.

    Attributes:
        fixed: symbol to value, as asked for.
        derived: symbol to (value, from what).
        free: what is left.
    """

    fixed: dict[str, int] = field(default_factory=dict)
    derived: dict[str, tuple[int, str]] = field(default_factory=dict)
    free: list[FreeDim] = field(default_factory=list)

    def values(self) -> dict[str, int]:
        """Every symbol that has a value."""
        return self.fixed | {name: value for name, (value, _) in self.derived.items()}

    def require_fixed(self, ep: str) -> None:
        """Stop where an EP needs every dim.

        Raises:
            FreeDims: some are free.
        """
        if self.free:
            raise FreeDims(ep, self.free)


def fix_dims(model: ir.Model, asked: Mapping[str, int]) -> Dims:
    """Set the dims of a model in place, and infer all shapes from them.

    Args:
        model: a model whose inputs may have symbolic dims.
        asked: values by symbol, place or role.

    Raises:
        BadInput: a name that is no dim of the model, two values for one dim, values that do not
            fit together, or shapes that contradict each other.
    """
    places, roles = places_and_roles(model)
    dims = Dims(_resolve(model, asked, places, roles))
    _derive_sums(model, dims)
    _derive_total(dims, roles)
    _check_rotary(model, dims, roles)
    _apply(model, dims.values())
    _infer(model, dims)
    if _derive_heads(model, dims):
        _apply(model, dims.values())
        _infer(model, dims)
    _check_caches(model)
    _check_declared(model, dims)
    dims.free = _free_dims(model, dims, places, roles)
    known = dims.values()
    if known:
        remembered = {**_remembered(model), **known}
        model.metadata_props[DIMS] = json.dumps(remembered, sort_keys=True)
    return dims


# -- names ---------------------------------------------------------------------------------------


def places_and_roles(model: ir.Model) -> tuple[dict[str, list[tuple[str, int]]], dict[str, str]]:
    """Where each symbol stands, and the role it has in a transformer, if any."""
    places = _places(model)
    return places, _roles(places)


def _places(model: ir.Model) -> dict[str, list[tuple[str, int]]]:
    """Symbol to the (input, axis) where it stands; unnamed dims get the name ``input:axis``."""
    found: dict[str, list[tuple[str, int]]] = {}
    for value in model.graph.inputs:
        if value.shape is None or value.is_initializer():
            continue
        named = [
            dim if isinstance(dim, int) else dim.value or f"{value.name}:{axis}"
            for axis, dim in enumerate(value.shape)
        ]
        if any(not isinstance(dim, int) and dim.value is None for dim in value.shape):
            value.shape = ir.Shape(named)
        for axis, dim in enumerate(named):
            if isinstance(dim, str):
                found.setdefault(dim, []).append((value.name or "", axis))
    return found


def _roles(places: Mapping[str, list[tuple[str, int]]]) -> dict[str, str]:
    """Symbol to role, by where it stands, else by what it is called."""
    roles: dict[str, str] = {}
    for symbol, where in places.items():
        by_place = {role for name, axis in where if (role := _role_at(name, axis))}
        role = _role_called(symbol) or (by_place.pop() if len(by_place) == 1 else "")
        if role:
            roles[symbol] = role
    return roles


def _role_at(name: str, axis: int) -> str:
    """The role of a place, or nothing."""
    matches = (r for pattern, at, r in _PLACES if axis == at and re.fullmatch(pattern, name))
    return next(matches, "")


def _role_called(symbol: str) -> str:
    """The role that a symbol's name says, or nothing."""
    return next((role for role, names in _SYMBOLS.items() if symbol in names), "")


def _plain(name: str) -> str:
    """A name as it is compared: blanks around ``+`` mean nothing."""
    return "+".join(part.strip() for part in name.split("+"))


def _resolve(
    model: ir.Model,
    asked: Mapping[str, int],
    places: Mapping[str, list[tuple[str, int]]],
    roles: Mapping[str, str],
) -> dict[str, int]:
    fixed: dict[str, int] = {}
    for name, value in asked.items():
        if value < 0:
            raise BadInput(f"--dim {name}={value}: a dim is 0 or more")
        symbols = [s for s in places if _plain(s) == _plain(name)]
        symbols = symbols or [s for s, role in roles.items() if role == name]
        symbols += [s for s, where in places.items() if name in {f"{n}:{a}" for n, a in where}]
        for symbol in symbols:
            if fixed.setdefault(symbol, value) != value:
                raise BadInput(
                    f"--dim {name}={value}: {symbol} is {fixed[symbol]} by another --dim; give "
                    "it once"
                )
            if value == 0 and roles.get(symbol) in _COMPUTING:
                raise BadInput(f"--dim {name}=0: {roles[symbol]} is 1 or more")
        if not symbols:
            _check_static(model, name, value, places, roles)
    return fixed


def _check_static(
    model: ir.Model,
    name: str,
    value: int,
    places: Mapping[str, list[tuple[str, int]]],
    roles: Mapping[str, str],
) -> None:
    """A dim that is a number already may be given again, but not another value."""
    known = _static(model)
    if name not in known:
        names = [s + (f" ({roles[s]})" if roles.get(s, s) != s else "") for s in places]
        raise BadInput(
            f"--dim {name}: the model has no such dim; "
            + (f"its dims are {', '.join(names)}" if names else "all its dims are fixed")
        )
    if known[name] != value:
        raise BadInput(f"--dim {name}={value}: this model has it fixed at {known[name]}")


def _static(model: ir.Model) -> dict[str, int]:
    """Dims that are numbers, by every name that they may be asked for."""
    known = _remembered(model)
    for symbol, value in list(known.items()):
        known.setdefault(_plain(symbol), value)
        if role := _role_called(symbol):
            known.setdefault(role, value)
    for graph_input in model.graph.inputs:
        for axis, dim in enumerate(graph_input.shape or ()):
            if isinstance(dim, int):
                known.setdefault(f"{graph_input.name}:{axis}", dim)
                known.setdefault(_role_at(graph_input.name or "", axis), dim)
    known.pop("", None)
    return known


def _remembered(model: ir.Model) -> dict[str, int]:
    """Dims that an earlier run fixed; nothing if what is stored is not of ours."""
    try:
        stored = json.loads(model.metadata_props.get(DIMS, "{}"))
    except ValueError:
        return {}
    pairs = stored.items() if isinstance(stored, dict) else ()
    return {name: value for name, value in pairs if type(value) is int}


# -- derivation ----------------------------------------------------------------------------------


def _derive_sums(model: ir.Model, dims: Dims) -> None:
    """Symbols such as ``past + seq``: the sum from its terms, or the last term from the rest."""
    sums = {s: _plain(s).split("+") for s in _symbols(model) if "+" in s}
    while any(_derive_sum(symbol, terms, dims) for symbol, terms in sums.items()):
        pass


def _derive_sum(symbol: str, terms: list[str], dims: Dims) -> bool:
    """Derive what one sum determines; whether there was anything."""
    known = dims.values()
    open_terms = [t for t in terms if not t.isdecimal() and t not in known]
    rest = sum(int(t) if t.isdecimal() else known.get(t, 0) for t in terms)
    if not open_terms:
        if known.setdefault(symbol, rest) != rest:
            raise BadInput(
                f"--dim: {symbol} is given as {known[symbol]}, but its parts make {rest}; "
                "leave one of them out"
            )
        if symbol in dims.values():
            return False
        dims.derived[symbol] = (rest, "its own sum")
        return True
    if symbol not in known or len(open_terms) > 1 or "" in open_terms:
        return False
    if known[symbol] < rest:
        raise BadInput(
            f"--dim: {symbol} is given as {known[symbol]}, less than its parts, {rest}; "
            "leave one of them out"
        )
    dims.derived[open_terms[0]] = (known[symbol] - rest, f"{symbol} = {known[symbol]}")
    return True


def _derive_total(dims: Dims, roles: Mapping[str, str]) -> None:
    """The length of the mask; less than past + seq where the cache is a buffer with room."""
    known = dims.values()
    by_role = {role: symbol for symbol, role in roles.items()}
    total, past, seq = (by_role.get(role) for role in ("total", "past", "seq"))
    if total is None or past not in known or seq not in known:
        return
    most = known[past] + known[seq]
    if total not in known:
        dims.derived[total] = (most, f"{past} + {seq}")
    elif not known[seq] <= known[total] <= most:
        raise BadInput(
            f"--dim: {total} is given as {known[total]}; with {past}={known[past]} and "
            f"{seq}={known[seq]} it is from {known[seq]} to {most}, leave it out for {most}"
        )


def _derive_heads(model: ir.Model, dims: Dims) -> bool:
    """Head sizes of caches, from the widths of what goes into attention."""
    found = False
    for node in _attentions(model):
        query, key, past = node.inputs[0], node.inputs[1], node.inputs[3]
        widths = None if query is None else dims_of(query)
        rows = None if past is None else past.shape
        heads, kv_heads = (_integer(node, name) for name in ("num_heads", "kv_num_heads"))
        parts = heads if present(key) else heads + 2 * kv_heads
        if not widths or widths[-1] is None or rows is None or rows.rank() != 4 or parts < 1:
            continue
        size = rows[3]
        if not isinstance(size, int) and str(size) not in dims.values():
            dims.derived[str(size)] = (widths[-1] // parts, f"the head size of '{node.name}'")
            found = True
    return found


def _attentions(model: ir.Model) -> Iterator[ir.Node]:
    for node in model.graph:
        if op_of(node) == "com.microsoft::GroupQueryAttention" and len(node.inputs) >= 5:
            yield node


def _integer(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    given = attribute is not None and attribute.type == ir.AttributeType.INT
    return attribute.as_int() if attribute is not None and given else 0


# -- what does not fit ---------------------------------------------------------------------------


def _rotary_rows(model: ir.Model) -> tuple[int, str] | None:
    """Rows of the shortest rotary table, and its name: no sequence can be longer."""
    found = []
    for node in _attentions(model):
        table = node.inputs[7] if len(node.inputs) > 7 else None
        dims = dims_of(table) if table is not None and present(table) else None
        if table is not None and dims and dims[0] is not None:
            found.append((dims[0], table.name or ""))
    return min(found, default=None)


def _check_rotary(model: ir.Model, dims: Dims, roles: Mapping[str, str]) -> None:
    known = dims.values()
    total = next((known[s] for s, role in roles.items() if role == "total" and s in known), 0)
    rows = _rotary_rows(model)
    if rows is not None and total > rows[0]:
        given = ", ".join(f"{s}={v}" for s, v in known.items())
        raise BadInput(
            f"--dim: a sequence of {total} ({given}) is longer than the rotary table '{rows[1]}', "
            f"which has {rows[0]} rows; give a shorter past or seq"
        )


def _check_caches(model: ir.Model) -> None:
    """The caches of an attention have its heads, and keys and values the same shape."""
    for node in _attentions(model):
        queries, heads = _integer(node, "num_heads"), _integer(node, "kv_num_heads")
        if heads < 1 or queries < 1 or queries % heads:
            raise BadInput(
                f"node '{node.name}' has {queries} heads over {heads} heads of its cache; "
                "export it again"
            )
        caches = [v for v in node.inputs[3:5] if v is not None and present(v)]
        shapes = [dims_of(value) for value in caches]
        for value, dims in zip(caches, shapes, strict=True):
            if dims is None:
                continue
            if len(dims) != 4 or (dims[1] is not None and dims[1] != heads):
                raise BadInput(
                    f"the cache '{value.name}' of node '{node.name}' has the shape {value.shape}, "
                    f"where (batch, {heads}, past, head size) is needed; export it again"
                )
        if len(shapes) == 2 and None not in shapes and shapes[0] != shapes[1]:
            raise BadInput(
                f"the caches of node '{node.name}' differ: '{caches[0].name}' is "
                f"{caches[0].shape}, '{caches[1].name}' {caches[1].shape}; export it again"
            )


def _infer(model: ir.Model, dims: Dims) -> None:
    try:
        infer_model(model)
    except MemoryError:
        raise
    except Exception as error:  # whatever the inference of an op makes of a wrong graph
        raise BadInput(_unfit(dims, str(error))) from None


def _check_declared(model: ir.Model, dims: Dims) -> None:
    """Refuse shapes that the file declares and its own nodes contradict.

    Ops of ai.onnx only: for others the inference may know less than the file does.
    """
    try:
        inference.infer_symbolic_shapes(model.clone(), policy="strict", warn_on_missing=False)
    except inference.ShapeInferenceError as error:
        if isinstance(error.__cause__, ValueError) and error.domain in {"", "ai.onnx"}:
            raise BadInput(_unfit(dims, str(error.__cause__))) from None


def _unfit(dims: Dims, found: str) -> str:
    given = ", ".join(f"{s}={v}" for s, v in dims.fixed.items())
    start = f"with {given}, shapes" if given else "shapes of the model"
    step = "give other dims" if given else "export it again"
    return f"{start} do not fit together: {found}; {step}"


# -- what is left --------------------------------------------------------------------------------


def _free_dims(
    model: ir.Model,
    dims: Dims,
    places: Mapping[str, list[tuple[str, int]]],
    roles: Mapping[str, str],
) -> list[FreeDim]:
    known = dims.values()
    free = [symbol for symbol in places if symbol not in known]
    proposals = _proposals(model, known, roles)
    names = {s: _name(s, roles) for s in free}
    return [
        FreeDim(
            names[symbol],
            f"{places[symbol][0][0]}, axis {places[symbol][0][1]}",
            ROLES[roles[symbol]][0] if symbol in roles else "not known to this tool",
            _proposal(symbol, roles, proposals),
        )
        for symbol in free
    ]


def _name(symbol: str, roles: Mapping[str, str]) -> str:
    """The role, unless two symbols share it."""
    role = roles.get(symbol, "")
    return role if list(roles.values()).count(role) == 1 else symbol


def _proposal(
    symbol: str, roles: Mapping[str, str], proposals: Mapping[str, int | None]
) -> int | None:
    if "+" in symbol:
        return None  # its terms are dims of their own
    return proposals.get(roles.get(symbol, ""), 1)


def _proposals(
    model: ir.Model, known: Mapping[str, int], roles: Mapping[str, str]
) -> dict[str, int | None]:
    """A value for each role that fits the dims that are known, and the rotary table."""
    values: dict[str, int | None] = {role: value for role, (_, value) in ROLES.items()}
    given = {roles[symbol]: value for symbol, value in known.items() if symbol in roles}
    rows = _rotary_rows(model)
    longest = rows[0] if rows else None
    if "past" in roles.values():
        seq = given.get("seq", 1)
        if longest is not None:
            values["past"] = max(min(ROLES["past"][1], longest - seq), 0)
        values["total"] = None  # past + seq
    else:
        values["seq"] = given.get("total", min(_ENCODER_TOKENS, longest or _ENCODER_TOKENS))
        values["total"] = given.get("seq", values["seq"])
    return values


# -- setting -------------------------------------------------------------------------------------


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        for node in graph:
            yield from node.outputs


def _symbols(model: ir.Model) -> dict[str, None]:
    return {
        str(dim): None
        for value in _values(model)
        for dim in value.shape or ()
        if not isinstance(dim, int) and dim.value is not None
    }


def _apply(model: ir.Model, known: Mapping[str, int]) -> None:
    for value in _values(model):
        if value.shape is None or value.shape.is_static():
            continue
        value.shape = ir.Shape(
            [dim if isinstance(dim, int) else known.get(str(dim), dim) for dim in value.shape]
        )
