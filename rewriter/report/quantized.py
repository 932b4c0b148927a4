"""What became of weights, as lines of the terminal: how they are stored, and what that costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rewriter.outcome import GraphOutcome
from rewriter.quantize.spec import WeightError

_MOST = 3
"""Names in a line."""


def storage_lines(graph: GraphOutcome) -> Iterator[str]:
    """Storage and compute of quantized weights, two facts; and the memory traffic of the graph."""
    kinds: dict[tuple[str, str], list[int]] = defaultdict(list)
    for weight in graph.quantized:
        kinds[weight.stored, weight.computed].append(weight.bytes)
    for (stored, computed), sizes in kinds.items():
        kept = f"{len(sizes)} weights stored in {stored}, {sum(sizes):,} bytes read in a run"
        yield f"  quantized   {kept}; computed in {computed}"
    found = graph.traffic
    if found is None or not found.tokens:
        return
    run = "" if found.tokens == 1 else f", {found.tokens} in a run"
    parts = f"weights {found.weights:,}, inputs and outputs {found.interface:,} of a run"
    yield f"  memory      about {found.per_token:,} bytes for a token{run}: {parts}"


def error_lines(errors: Sequence[WeightError]) -> Iterator[str]:
    """The error of weights that were quantized, and which were not."""
    made: dict[tuple[int, int, str], list[WeightError]] = defaultdict(list)
    for error in errors:
        if error.bits:
            made[error.bits, error.block, error.method].append(error)
    for (bits, block, method), found in made.items():
        shared = f"blocks of {block}" if block else "columns"
        by = "their measured inputs" if all(e.measured for e in found) else "equal inputs"
        worst = max(found, key=lambda e: e.rms)
        figures = f"largest error {worst.rms:.1e} rms ('{worst.weight}'), weighted by {by}"
        steps = f"{max(e.steps for e in found):.2f} steps"
        yield (
            f"  weights     {len(found)} quantized to {bits} bits, {shared}, {method}: {figures}; "
            f"at most {steps}"
        )
    wider = [error for error in errors if error.rms4 is not None and error.bits]
    if wider:
        yield f"              8 bits, as 4 are off by too much: {_names(wider)}"
    for note in dict.fromkeys(error.note for error in errors if error.note):
        left = [error for error in errors if error.note == note]
        stay = "stay float" if all(not error.bits for error in left) else "partly"
        yield f"              {len(left)} {stay} ({_names(left)}): {note}"


def _names(errors: Sequence[WeightError]) -> str:
    more = f" and {len(errors) - _MOST} more" if len(errors) > _MOST else ""
    return ", ".join(error.weight for error in errors[:_MOST]) + more
