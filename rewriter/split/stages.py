"""Which stage of a transformer each node belongs to: the embedding, a layer, or the head.

What is cheap and depends on inputs alone, as masks and positions do, belongs to none: each part
computes what it needs of it again. That keeps booleans and 64-bit integers inside, as some
runtimes take those neither as inputs nor as outputs of a graph, or only with fewer ranks than
inside it; a mask of floats would be the largest of what parts pass on; and each part stays able
to be placed as the whole was. The few integer operations are nothing beside a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from rewriter.split.flow import Flow, nbytes, reach, repeatable
from rewriter.split.trunk import Trunk, floating

_TABLE_BYTES = 1 << 26
"""Bytes of constants up to which something is computed again: the tables of rotary positions
take up to 64 MB, those of tokens more."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Where nodes belong.

    Attributes:
        of: by node, 0 for the embedding, k for the k-th layer, one more for the head. The number
            of a node is never lower than that of a node it depends on.
        layers: how many there are.
    """

    of: dict[int, int]
    layers: int


def stages(flow: Flow, trunk: Trunk) -> Stages:
    """Give every node that is computed once its stage."""
    again = _again(flow, trunk)
    staged = [i for i in range(len(flow.nodes)) if i not in again and i not in flow.fixed]
    shared = {i for i in staged if i not in trunk.mixed and i not in trunk.first}
    ends = {i: k + 2 for k, i in enumerate(trunk.ends)}
    of: dict[int, int] = {}
    for i in staged:
        stage = 0
        for j in flow.before[i]:
            if j in of:
                passed = 0 if trunk.inside else ends.get(j, 0)
                stage = max(stage, of[j], passed)
        if trunk.start in flow.reads(i) and i not in shared:
            stage = max(stage, 1)
        of[i] = max(stage, ends.get(i, 0)) if trunk.inside else stage
    needs: dict[int, set[int]] = {}
    for i in reversed(staged):
        if i in shared:
            readers = flow.after[i]
            needs[i] = {s for j in readers for s in (needs[j] if j in shared else {of[j]})}
            if len(needs[i]) == 1:
                of[i] = max(of[i], *needs[i])
    _delay(flow, of)
    return Stages(of, len(trunk.ends))


def _delay(flow: Flow, of: dict[int, int]) -> None:
    """Move what only later layers need to them, if all it reads are outputs of the model.

    Those are handed on without being another output, as the cache is that layers share.
    """
    free: set[int] = set()
    for i in sorted(of):
        made = [v for v in flow.reads(i) if flow.maker(v) in of]
        known = all(v.is_graph_output() or flow.maker(v) in free for v in made)
        if made and known and not flow.product(i):
            free.add(i)
    for i in sorted(free, reverse=True):
        if flow.after[i] and not any(v.is_graph_output() for v in flow.nodes[i].outputs):
            of[i] = max(of[i], min(of[j] for j in flow.after[i]))


def _again(flow: Flow, trunk: Trunk) -> set[int]:
    """Nodes that each part computes for itself."""
    nodes = range(len(flow.nodes))
    below = reach([i for i in nodes if trunk.start in flow.reads(i)], flow.after)
    made = flow.maker(trunk.start)
    above = reach([] if made is None else [made], flow.before)
    found: set[int] = set()
    for i in nodes:
        if i in flow.fixed or i in flow.heavy or i in below or i == made:
            continue
        if i in above and any(floating(v) for v in flow.nodes[i].outputs):
            continue
        tables = nbytes(flow.stored(reach([i], flow.before)))
        if (
            found.issuperset(flow.before[i])
            and repeatable(flow.nodes[i])
            and tables <= _TABLE_BYTES
        ):
            found.add(i)
    return found
