"""One generated node with everything it is given, and what strategies draw it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from hypothesis import strategies as st

Array = npt.NDArray[Any]
T = TypeVar("T")
MS = "com.microsoft::"
F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
I32, I64, BOOL = ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL
Defined = Callable[[str, Array], Array]


@dataclass(frozen=True)
class Arg:
    """An input: its tensor, and whether the model stores it."""

    tensor: ir.TensorProtocol
    const: bool = False

    def __str__(self) -> str:
        dims = "x".join(map(str, self.tensor.shape.numpy())) or "scalar"
        return f"{self.tensor.dtype.name.lower()}[{dims}]{' const' * self.const}"

    @property
    def array(self) -> Array:
        return np.asarray(self.tensor.numpy())


def arg(array: npt.ArrayLike | ir.TensorProtocol, *, const: bool = False) -> Arg:
    """An input from an array, or from a tensor whose type numpy does not have."""
    given = array if isinstance(array, ir.TensorProtocol) else ir.tensor(np.asarray(array))
    return Arg(given, const)


@dataclass(frozen=True)
class Case:
    """A node.

    Attributes:
        op: ``domain::Type``.
        inputs: by the schema's name, in order; ``None`` leaves one out.
        outputs: element types in order; ``None`` leaves one out.
        attributes: as given on the node.
        opset: of ai.onnx.
        defined: the part of an output (by index) that the op defines.
        oracle: outputs typed out, where ONNX Runtime's CPU has no kernel.
        symbolic: run-time inputs have named dims.
        tolerance: of float32, relative to the largest value.
    """

    op: str
    inputs: Mapping[str, Arg | None]
    outputs: Sequence[ir.DataType | None] = (F32,)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 22
    defined: Callable[[int, Array], Array] | None = None
    oracle: Callable[[], Sequence[Array]] | None = None
    symbolic: bool = False
    tolerance: float = 1e-5

    def __str__(self) -> str:
        inputs = ", ".join(f"{k}: {v}" for k, v in self.inputs.items() if v is not None)
        attributes = ", ".join(f"{k}={v}" for k, v in self.attributes.items())
        outputs = ["-" if kind is None else kind.name.lower() for kind in self.outputs]
        more = " symbolic" * self.symbolic
        return f"{self.op}({inputs}; {attributes}) -> {outputs} opset {self.opset}{more}"


class Draw:
    """Choices of one example; numbers come from one generator that is a choice itself."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))

    def integer(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return self._draw(st.integers(low, high))

    def pick(self, *options: T) -> T:
        """One of several; the first is the simplest."""
        return self._draw(st.sampled_from(options))

    def flag(self) -> bool:
        """Yes or no; no is simpler."""
        return self._draw(st.booleans())

    def rarely(self) -> bool:
        """Yes one time in six."""
        return self.pick(False, False, False, False, False, True)

    def shape(self, low: int, high: int, most: int = 6) -> tuple[int, ...]:
        """Dims of a rank from ``low`` to ``high``, 1 and odd ones among them."""
        return tuple(self.integer(1, most) for _ in range(self.integer(low, high)))

    def kind(self) -> ir.DataType:
        """Float32 mostly, or float16."""
        return self.pick(F32, F32, F16)

    def opset(self, low: int, high: int = 24) -> int:
        """A version of ai.onnx."""
        return self.integer(low, high)

    def floats(
        self, shape: Sequence[int], dtype: ir.DataType = F32, *, const: bool | None = False,
        spread: float = 1.0, shift: float = 0.0,
    ) -> Arg:  # fmt: skip
        """Normal numbers; ``const=None`` draws whether they are stored."""
        numbers = shift + spread * self.rng.standard_normal(tuple(shape))
        return arg(np.asarray(numbers).astype(dtype.numpy()), const=self.decide(const))

    def integers(
        self, low: int | Array, high: int | Array, shape: Sequence[int],
        dtype: ir.DataType = I64, *, const: bool | None = False,
    ) -> Arg:  # fmt: skip
        """Integers from ``low`` up to, not including, ``high``."""
        numbers = self.rng.integers(low, high, tuple(shape))
        return arg(np.asarray(numbers).astype(dtype.numpy()), const=self.decide(const))

    def given(self, array: npt.ArrayLike, dtype: ir.DataType, *, const: bool | None = False) -> Arg:
        """These numbers."""
        return arg(np.asarray(array).astype(dtype.numpy()), const=self.decide(const))

    def decide(self, const: bool | None) -> bool:
        return self.flag() if const is None else const

    def attributes(self, **options: Sequence[Any]) -> dict[str, Any]:
        """One of the options of each attribute; ``None`` leaves it out."""
        drawn = {name: self.pick(*values) for name, values in options.items()}
        return {name: value for name, value in drawn.items() if value is not None}


Strategy = Callable[[Draw, str], Case]
STRATEGIES: dict[str, Strategy] = {}


def draws(*ops: str) -> Callable[[Strategy], Strategy]:
    """Register a strategy for the ops whose nodes it draws."""

    def register(strategy: Strategy) -> Strategy:
        for op in ops:
            assert op not in STRATEGIES, op
            STRATEGIES[op] = strategy
        return strategy

    return register
