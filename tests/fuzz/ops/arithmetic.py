"""Products: Gemm, Einsum, MatMul over many columns, FusedMatMul, TransposeMatMul."""

from __future__ import annotations

from tests.fuzz.case import MS, Arg, Case, Draw, draws

EQUATIONS = {
    "bhqd,bhkd->bhqk": 2, "bsh,hd->bsd": 2, "bhqk,bhkd->bhqd": 2, "bhwc,bhkc->bhwk": 2,
    "ij,jk->ik": 2, "ij,jk": 2, "ij,kj->ki": 2, "i,j->ij": 2, "ij->ji": 1, "ij->i": 1, "ij->": 1,
    "bij,bjk->bik": 2, "bij,bjk,bkl->bil": 3, "abc,cd->abd": 2, "...ij,...jk->...ik": 2,
    "...ij,jk->...ik": 2, "bn,anm,bm->ba": 3, "bqhd,bkhd->bhqk": 2, "bhqk,bkhd->bqhd": 2,
    "ijk,ijk->ijk": 2, "ijk,ijk->i": 2, "ij,ij->": 2, "ii->i": 1, "ij, jk -> ik": 2, "ab,cd->bd": 2,
    "ba,bc": 2, "bhld,bhldk->bhlk": 2,
}  # fmt: skip


@draws("Einsum")
def einsum(d: Draw, op: str) -> Case:
    equation = d.pick(*EQUATIONS)
    sizes = {letter: d.integer(1, 4) for letter in sorted(set(equation) - set(" ,->."))}
    extra = d.shape(1, 2, 3)
    kind = d.kind()
    inputs: dict[str, Arg | None] = {}
    for i, term in enumerate(equation.replace(" ", "").partition("->")[0].split(",")):
        shape = [sizes[letter] for letter in term.replace("...", "")]
        if "..." in term:
            shape = [*extra, *shape]
        inputs[f"Inputs_{i}"] = d.floats(shape, kind, const=None if i else False)
    said = {"equation": equation}
    return Case(op, inputs, [kind], said, d.opset(13, 24), symbolic=d.rarely())


@draws("Gemm")
def gemm(d: Draw, op: str) -> Case:
    m, k, n, kind = d.integer(1, 4), d.integer(1, 5), d.integer(1, 4), d.kind()
    said = d.attributes(
        transA=[None, 0, 1],
        transB=[None, 0, 1],
        alpha=[None, 1.0, 0.5, -2.0],
        beta=[None, 1.0, 0.3],
    )
    inputs: dict[str, Arg | None] = {
        "A": d.floats((k, m) if said.get("transA") else (m, k), kind),
        "B": d.floats((n, k) if said.get("transB") else (k, n), kind, const=None),
    }
    if d.flag():
        inputs["C"] = d.floats(d.pick((n,), (m, n), (1, n), (m, 1), (1,), ()), kind, const=None)
    return Case(op, inputs, [kind], said, d.opset(13, 24), symbolic=d.rarely())


@draws("MatMul")
def wide_matmul(d: Draw, op: str) -> Case:
    kind, k, n = d.kind(), d.pick(32768, 32768, 65535, 65536, 40000, 7), d.integer(1, 3)
    shape = (*d.shape(0, 2, 2), d.integer(1, 3), k)
    dims = (k, n) if not d.rarely() else (*shape[:-2], k, n)
    inputs: dict[str, Arg | None] = {
        "A": d.floats(shape, kind),
        "B": d.floats(dims, kind, const=not d.rarely()),
    }
    return Case(op, inputs, [kind], {}, d.opset(13, 24), symbolic=d.rarely())


@draws(f"{MS}FusedMatMul", f"{MS}TransposeMatMul")
def fused(d: Draw, op: str) -> Case:
    kind = d.kind()
    m, k, n = d.integer(1, 4), d.integer(1, 5), d.integer(1, 4)
    batch = d.shape(0, 2, 3)
    said = d.attributes(transA=[None, 0, 1], transB=[None, 0, 1], alpha=[None, 1.0, 0.125, -3.0])
    if op.endswith("FusedMatMul") and batch:
        said |= d.attributes(transBatchA=[None, None, 0, 1], transBatchB=[None, None, 0, 1])

    def shape(rows: int, columns: int, flipped: str, moved: str) -> tuple[int, ...]:
        dims = (rows, columns) if not said.get(flipped) else (columns, rows)
        whole = (*batch, *dims)
        # transBatch: the batch dims come after the first of the two matrix dims
        return (dims[0], *batch, dims[1]) if said.get(moved) else whole

    inputs: dict[str, Arg | None] = {"A": d.floats(shape(m, k, "transA", "transBatchA"), kind)}
    b = shape(k, n, "transB", "transBatchB")
    if d.rarely() and not said.get("transBatchA") and not said.get("transBatchB"):
        b = b[len(batch) :]
    elif d.rarely() and not batch:
        b = (k,)
        said.pop("transB", None)
    inputs["B"] = d.floats(b, kind, const=None)
    return Case(op, inputs, [kind], said, d.opset(13, 24), symbolic=d.rarely())
