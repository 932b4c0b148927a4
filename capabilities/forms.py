"""The named predicates over facts that rows and rules are written in.

A form is terms joined by ``&``: ``bias given & A rank 2``. Each kind of term is registered here
once, with a pattern and a predicate, so that a misspelt form is an error when the table is read
and every form prints as it was written. Names of inputs, outputs and attributes are those of the
op's schema; comparing with something unknown (a dim, a dtype) is false, never an error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from capabilities.facts import Facts, Tensor

Predicate = Callable[[Facts, re.Match[str]], bool]


@dataclass(frozen=True, slots=True)
class Term:
    """A registered kind of term: its pattern, its predicate, and a line of documentation."""

    pattern: re.Pattern[str]
    predicate: Predicate
    about: str


TERMS: list[Term] = []


def term(pattern: str) -> Callable[[Predicate], Predicate]:
    """Register a kind of term; third parties may add their own."""

    def register(predicate: Predicate) -> Predicate:
        TERMS.append(Term(re.compile(pattern), predicate, (predicate.__doc__ or "").strip()))
        return predicate

    return register


@dataclass(frozen=True, slots=True)
class Form:
    """A conjunction of terms, printed as written."""

    text: str

    def __post_init__(self) -> None:
        _compile(self.text)

    def __str__(self) -> str:
        return self.text

    def holds(self, facts: Facts) -> bool:
        """Whether every term is true of the unit."""
        for known, match, wanted in _compile(self.text):
            if known.predicate(facts, match) is not wanted:
                return False
        return True


@cache
def _compile(text: str) -> tuple[tuple[Term, re.Match[str], bool], ...]:
    compiled = []
    for raw in text.split("&"):
        words = raw.strip()
        wanted = not words.startswith("not ")
        words = words.removeprefix("not ")
        for known in TERMS:
            if match := known.pattern.fullmatch(words):
                compiled.append((known, match, wanted))
                break
        else:
            raise ValueError(f"'{words}' in the form '{text}' is no form that is registered")
    return tuple(compiled)


_FLOATS = frozenset({"float", "float16", "bfloat16", "double"})
_NAME = r"(?P<name>[A-Za-z_]\w*)"
_BINARY = {"<=": lambda a, b: a <= b, ">": lambda a, b: a > b, "": lambda a, b: a == b}


def _tensors(facts: Facts) -> Iterable[Tensor]:
    yield from facts.inputs.values()
    yield from facts.outputs.values()


def _tensor(facts: Facts, name: str) -> Tensor | None:
    return facts.inputs.get(name) or facts.outputs.get(name)


@term(r"any")
def _any(_facts: Facts, _match: re.Match[str]) -> bool:
    """Every unit of the op."""
    return True


@term(r"standard")
def _standard(facts: Facts, _match: re.Match[str]) -> bool:
    """The op is in the ONNX standard at the model's opset."""
    return facts.standard


@term(r"newer")
def _newer(facts: Facts, _match: re.Match[str]) -> bool:
    """It came after the highest opset that the target takes."""
    return facts.newer


@term(r"opset (?P<compare><=|>)? ?(?P<opset>\d+)")
def _opset(facts: Facts, match: re.Match[str]) -> bool:
    """Version of the op's domain in the model."""
    return bool(_BINARY[match["compare"] or ""](facts.opset, int(match["opset"])))


@term(r"dynamic")
def _dynamic(facts: Facts, _match: re.Match[str]) -> bool:
    """Some input or output has a dim that is not a number, or an unknown rank."""
    return any(t.shape is None or None in t.shape for t in _tensors(facts))


@term(r"empty")
def _empty(facts: Facts, _match: re.Match[str]) -> bool:
    """Some input has no element."""
    return any(t.shape is not None and 0 in t.shape for t in facts.inputs.values())


@term(rf"{_NAME} (?P<state>given|absent)")
def _given(facts: Facts, match: re.Match[str]) -> bool:
    """An optional input or output is there, or is not."""
    return (_tensor(facts, match["name"]) is not None) is (match["state"] == "given")


@term(rf"{_NAME} const")
def _const(facts: Facts, match: re.Match[str]) -> bool:
    """An input is stored in the model."""
    found = facts.inputs.get(match["name"])
    return found is not None and found.const


@term(rf"{_NAME} at the boundary")
def _boundary(facts: Facts, match: re.Match[str]) -> bool:
    """A tensor is an input or an output of the whole graph."""
    found = _tensor(facts, match["name"])
    return found is not None and found.boundary


_PLACES = "at the boundary|outside the file"


@term(rf"some (?P<dtypes>\w+(?:/\w+)*)(?: rank (?P<rank>\d+))?(?: (?P<place>{_PLACES}))?")
def _some(facts: Facts, match: re.Match[str]) -> bool:
    """Any one input or output has that type (and that rank, and is the graph's own, or stored)."""
    rank, dtypes, place = match["rank"], match["dtypes"].split("/"), match["place"]
    return any(
        t.dtype in dtypes
        and (rank is None or t.rank == int(rank))
        and (place != "at the boundary" or t.boundary)
        and (place != "outside the file" or t.outside)
        for t in _tensors(facts)
    )


@term(rf"{_NAME} of one element")
def _one_element(facts: Facts, match: re.Match[str]) -> bool:
    """Every dim of an input or output is 1."""
    found = _tensor(facts, match["name"])
    return found is not None and found.shape is not None and set(found.shape) <= {1}


@term(rf"{_NAME} dim (?P<axis>-?\d+) (?P<compare><=|>)? ?(?P<size>\d+)")
def _dim(facts: Facts, match: re.Match[str]) -> bool:
    """Size of one dim of an input or output, negative axes counted from the end."""
    found, axis = _tensor(facts, match["name"]), int(match["axis"])
    if found is None or found.shape is None or not -len(found.shape) <= axis < len(found.shape):
        return False
    size = found.shape[axis]
    return size is not None and _BINARY[match["compare"] or ""](size, int(match["size"]))


@term(rf"{_NAME} dim (?P<axis>\d+) as in (?P<other>\w+)")
def _same_dim(facts: Facts, match: re.Match[str]) -> bool:
    """Two tensors are known to be equally long along an axis."""
    axis = int(match["axis"])
    sizes = [
        t.shape[axis] if t is not None and t.shape is not None and axis < len(t.shape) else None
        for t in (_tensor(facts, match["name"]), _tensor(facts, match["other"]))
    ]
    return sizes[0] is not None and sizes[0] == sizes[1]


@term(rf"{_NAME} dim (?P<axis>\d+) equal to (?P<attribute>\w+)")
def _dim_of_attribute(facts: Facts, match: re.Match[str]) -> bool:
    """One dim of an input or output is what an attribute says."""
    found, axis = _tensor(facts, match["name"]), int(match["axis"])
    if found is None or found.shape is None or axis >= len(found.shape):
        return False
    size = found.shape[axis]
    return size is not None and size == facts.attributes.get(match["attribute"])


@term(rf"{_NAME} from (?P<op>[\w.:]+)")
def _from(facts: Facts, match: re.Match[str]) -> bool:
    """An input is produced by that op."""
    found = facts.inputs.get(match["name"])
    return found is not None and found.source == match["op"]


@term(rf"(?:{_NAME} )?rank (?P<compare><=|>)? ?(?P<rank>\d+)")
def _rank(facts: Facts, match: re.Match[str]) -> bool:
    """Rank of one input or output; without a name, the highest rank among all of them."""
    if match["name"]:
        found = _tensor(facts, match["name"])
        rank = found.rank if found else None
    else:
        known = [t.rank for t in _tensors(facts) if t.rank is not None]
        rank = max(known, default=None)
    return rank is not None and _BINARY[match["compare"] or ""](rank, int(match["rank"]))


@term(rf"(?:{_NAME} )?dtype (?P<dtypes>\w+(?:/\w+)*)")
def _dtype(facts: Facts, match: re.Match[str]) -> bool:
    """Element type of one tensor, one of several joined by ``/``; without a name, of the first."""
    first = next(iter(_tensors(facts)), None)
    found = _tensor(facts, match["name"]) if match["name"] else first
    return found is not None and found.dtype in match["dtypes"].split("/")


@term(rf"{_NAME} floating")
def _floating(facts: Facts, match: re.Match[str]) -> bool:
    """A tensor of any float type."""
    found = _tensor(facts, match["name"])
    return found is not None and found.dtype in _FLOATS


@term(rf"{_NAME} all (?P<value>-?\d+(?:\.\d+)?)")
def _uniform(facts: Facts, match: re.Match[str]) -> bool:
    """Every element of a constant input has that value."""
    found = facts.inputs.get(match["name"])
    return found is not None and found.uniform in {float(match["value"])}


@term(r"activations (?P<dtypes>\w+(?:/\w+)*)")
def _activations(facts: Facts, match: re.Match[str]) -> bool:
    """What a weight's consumers multiply it with, or what a unit's activations are quantized to."""
    return facts.activations in match["dtypes"].split("/")


@term(
    r"negative scales|of positions|root last|minimum beside|zero points padded|may hide a row"
    r"|skips in the last axis|negative indices|of a diagonal"
)
def _trait(facts: Facts, match: re.Match[str]) -> bool:
    """What the nodes around it make of a node (:attr:`Facts.traits`)."""
    return match[0] in facts.traits


@term(r"last axis")
def _last_axis(facts: Facts, _match: re.Match[str]) -> bool:
    """The ``axis`` attribute names the last axis of the first input."""
    axis = facts.attributes.get("axis")
    rank = next(iter(facts.inputs.values())).rank if facts.inputs else None
    return axis == -1 or (rank is not None and axis == rank - 1)


@term(r"per tensor|per channel|blocked")
def _granularity(facts: Facts, match: re.Match[str]) -> bool:
    """How a QuantizeLinear or DequantizeLinear is scaled; one element is per tensor."""
    scale = facts.inputs.get("x_scale") or facts.inputs.get("y_scale")
    if scale is None or scale.shape is None:
        return False
    block = facts.attributes.get("block_size")
    if isinstance(block, int) and block > 0:
        return match[0] == "blocked"
    return match[0] == ("per tensor" if scale.shape in {(), (1,)} else "per channel")


@term(r"grouped heads")
def _grouped(facts: Facts, _match: re.Match[str]) -> bool:
    """An Attention has fewer key heads than query heads, by its attributes or by rank 4."""
    heads = facts.attributes.get("q_num_heads"), facts.attributes.get("kv_num_heads")
    q, k = facts.inputs.get("Q"), facts.inputs.get("K")
    if None in heads and q and k and q.shape and k.shape and q.rank == k.rank == 4:
        heads = q.shape[1], k.shape[1]
    return None not in heads and heads[0] != heads[1]


@term(r"K a multiple of block_size")
def _k_blocks(facts: Facts, _match: re.Match[str]) -> bool:
    """The reduced dim of a block-quantized MatMul fills its last block."""
    k, block = facts.attributes.get("K"), facts.attributes.get("block_size")
    return isinstance(k, int) and isinstance(block, int) and block > 0 and k % block == 0


@term(rf"option {_NAME}(?:=(?P<value>\S+))?")
def _option(facts: Facts, match: re.Match[str]) -> bool:
    """A provider option is set (to that value)."""
    value = facts.options.get(match["name"])
    return value is not None and match["value"] in {None, value}


def _float32(value: float) -> float:
    """The nearest float32: attributes are stored as such."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _same(actual: object, text: str) -> bool:
    if isinstance(actual, float):
        return _float32(actual) in {_float32(float(text))}
    if isinstance(actual, int):
        return re.fullmatch(r"-?\d+", text) is not None and actual == int(text)
    return str(actual) == text


@term(rf"{_NAME} containing (?P<part>\S+)")
def _containing(facts: Facts, match: re.Match[str]) -> bool:
    """A text attribute has some characters in it."""
    actual = facts.attributes.get(match["name"])
    return isinstance(actual, str) and match["part"] in actual


@term(rf"{_NAME}(?P<compare>=|!=|>=|<=)(?P<values>[^\s&]+)")
def _attribute(facts: Facts, match: re.Match[str]) -> bool:
    """An attribute, defaults applied, against a value or values joined by ``/``."""
    actual, values = facts.attributes.get(match["name"]), match["values"].split("/")
    if match["compare"] in {"=", "!="}:
        return any(_same(actual, value) for value in values) is (match["compare"] == "=")
    if not isinstance(actual, int | float):
        return False
    limit = float(values[0])
    return actual >= limit if match["compare"] == ">=" else actual <= limit
