"""The engine: judges every node, applies rules until nothing illegal is left, or says why not.

Legality is the table's (:meth:`capabilities.Target.judge`); rules are indexed by op. Fusions run
first, then lowering; each replacement is built on a tape and committed whole or not at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from capabilities import Facts, Judgement, Row, Target, Verdict
from rewriter.attempt import RuleError, attempt
from rewriter.commit import Commit
from rewriter.facts import facts_of
from rewriter.graphs import graphs_of, in_order
from rewriter.matching import Match, find
from rewriter.nodes import op_of, opset_of
from rewriter.opsets import NotRaisable, ir_version_of, lower_imports
from rewriter.passes.unused import remove_unused
from rewriter.raising import Raising
from rewriter.record import Fired, Report, StuckNode, Tried, count_ops
from rewriter.rule import Registry, Rule
from rewriter.site import Refusal
from rewriter.tape import Workspace, names_in

CHAIN = "rewriter.chain"
"""Key of ``ir.Node.meta``: the (rule, op, form) steps that a node came from."""

_BAD = frozenset({Verdict.ILLEGAL, Verdict.WRONG})


class Engine:
    """One run over one model. The model is edited in place.

    Args:
        model: dtypes and shapes should have been inferred.
        target: whose table decides.
        rules: the rules to use.
        disabled: names of rules that are not tried.
        keep_sites: record both sides of every new signature for parity.
        masked: the mask value that rules use in the place of their own.
    """

    def __init__(
        self,
        model: ir.Model,
        target: Target,
        rules: Registry,
        *,
        disabled: frozenset[str] = frozenset(),
        keep_sites: bool = True,
        masked: float | None = None,
    ) -> None:
        self.model = model
        self.target = target
        self.report = Report(target)
        self._opset = opset_of("", model.opset_imports)
        self._rules = rules
        self._disabled = disabled
        self._keep_sites = keep_sites
        self._signatures: set[str] = set()
        self._doubts: Counter[Row] = Counter()
        self._caveats: Counter[tuple[str, str]] = Counter()
        self._left: defaultdict[ir.Node, list[Tried]] = defaultdict(list)
        names, graphs = names_in(model.graph), self._graphs()
        self._spaces = {id(graph): Workspace(graph, names, masked) for graph in graphs}
        functions = model.functions.values()
        self._raising: dict[int, Raising] = {0: Raising(self._nodes)}
        self._raising |= {id(function): Raising(partial(list, function)) for function in functions}
        nodes = sum(len(graph) for graph in graphs)
        self._budget = 100 + 20 * nodes

    def run(self) -> Report:
        """Fuse, lower, tidy up, and report."""
        self.report.ops_before = count_ops(self._nodes())
        for graph in self._graphs():
            self._fuse(graph)
        for graph in graphs_of(self.model):
            self._lower(graph)
        for function in self._bodies():
            self._lower(function)
        lowered = self._lower_opset()
        self._tidy(changed=lowered or bool(self.report.fired))
        self.report.notes += [
            f"doubt: {row.op} [{row.form}] x {count}: {row.why} ({', '.join(row.evidence)}); "
            "measured otherwise, and kept"
            for row, count in self._doubts.items()
        ]
        self.report.notes += [f"{op} x {n}: {said}" for (op, said), n in self._caveats.items()]
        self.report.ops_after = count_ops(self._nodes())
        return self.report

    # -- graphs ----------------------------------------------------------------------------------

    def _graphs(self) -> list[ir.Graph | ir.Function]:
        found: list[ir.Graph | ir.Function] = list(graphs_of(self.model))
        return found + list(self.model.functions.values())

    def _bodies(self) -> list[ir.Function]:
        """Functions that are called, and not by an op that the target has by itself."""
        found: list[ir.Function] = []
        waiting: list[ir.Graph | ir.Function] = [self.model.graph]
        while waiting:
            graph = waiting.pop()
            imports = self._imports(graph)
            for node in ir.traversal.RecursiveGraphIterator(graph):
                function = self.model.functions.get(node.op_identifier())
                if function is None or function in found:
                    continue
                if self._judge(node, imports).verdict is not Verdict.LEGAL:
                    found.append(function)
                    waiting.append(function)
        return found

    def _nodes(self) -> Iterator[ir.Node]:
        for graph in self._graphs():
            yield from graph

    def _scope(self, graph: ir.Graph | ir.Function) -> Raising:
        return self._raising[id(graph) if isinstance(graph, ir.Function) else 0]

    def _imports(self, graph: ir.Graph | ir.Function) -> dict[str, int]:
        own = dict(graph.opset_imports) if isinstance(graph, ir.Function) else {}
        return {**self.model.opset_imports, **own}

    def _facts(self, node: ir.Node, imports: dict[str, int]) -> Facts:
        return facts_of(node, imports, self.target)

    def _judge(self, node: ir.Node, imports: dict[str, int]) -> Judgement:
        return self.target.judge(self._facts(node, imports))

    # -- phases ----------------------------------------------------------------------------------

    def _fuse(self, graph: ir.Graph | ir.Function) -> None:
        for node in list(graph):
            for rule in self._rules.fusing(op_of(node)):
                if node.graph is None or rule.name in self._disabled:
                    continue
                match = find(rule, self.model, graph, node)
                if match is None:
                    continue
                reason = self._attempt(rule, node, "any", graph, match)
                if isinstance(reason, str):
                    for matched in match.nodes:
                        self._left[matched].append(Tried(rule.name, reason))

    def _unwanted(self, rule: Rule, match: Match, commit: Commit, imports: dict[str, int]) -> str:
        """Why a fusion stays away: the pattern can stay, and what it builds could not."""
        if any(self._judge(node, imports).verdict in _BAD for node in match.nodes):
            return ""
        if rule.needed:
            return "the pattern is legal here"
        for node in commit.built:
            judgement = self._judge(node, imports)
            if judgement.verdict is not Verdict.LEGAL:
                return f"the pattern is legal here, and {op_of(node)} is {judgement.verdict}"
        return ""

    def _idle(self, node: ir.Node, rule: Rule, commit: Commit, imports: dict[str, int]) -> str:
        """Why a replacement gets nowhere: it holds the same op, illegal by the same row.

        One of several ways (:attr:`Rule.direct`) is left for the next where it is not legal whole.
        """
        if rule.direct:
            for built in commit.built:
                judgement = self._judge(built, imports)
                if judgement.verdict is not Verdict.LEGAL:
                    form = f"[{judgement.form}] is {judgement.verdict}: {judgement.why}"
                    return f"it needs {op_of(built)}, which {form}"
        alike = [built for built in commit.built if op_of(built) == op_of(node)]
        row = self._judge(node, imports).row if alike else None
        for built in alike:
            again = self._judge(built, imports)
            if row is not None and again.verdict in _BAD and again.row == row:
                return f"what it builds is illegal for the same reason [{row.form}]"
        return ""

    def _lower(self, graph: ir.Graph | ir.Function) -> None:
        waiting, imports = deque(graph), self._imports(graph)
        while waiting:
            node = waiting.popleft()
            if node.graph is None:
                continue
            facts = self._facts(node, imports)
            judgement = self.target.judge(facts)
            if judgement.verdict is Verdict.UNKNOWN:
                self.report.unknown.append((node.name or "", op_of(node)))
            if judgement.verdict in _BAD:
                waiting.extendleft(reversed(self._replace(node, facts, judgement, graph)))
                imports = self._imports(graph)  # a rule may have raised the opset
            elif judgement.doubts:
                waiting.extendleft(reversed(self._doubted(node, facts, judgement, graph)))
                imports = self._imports(graph)
            elif judgement.row is not None and judgement.row.caveat:
                self._caveats[op_of(node), judgement.row.caveat] += 1

    def _doubted(
        self, node: ir.Node, facts: Facts, judgement: Judgement, graph: ir.Graph | ir.Function
    ) -> Sequence[ir.Node]:
        """Replace a form that others report as bad, where that is free; else only say so."""
        doubt = judgement.doubts[0]
        for rule in self._rules.lowering(op_of(node)):
            if rule.free and rule.name not in self._disabled and rule.form.holds(facts):
                built = self._attempt(rule, node, str(doubt.form), graph, facts=facts)
                if isinstance(built, list):
                    return built
        self._doubts[doubt] += 1
        return []

    def _replace(
        self, node: ir.Node, facts: Facts, judgement: Judgement, graph: ir.Graph | ir.Function
    ) -> Sequence[ir.Node]:
        """Nodes that took the place of an illegal one; none if it is stuck, with the reasons."""
        refusals = self._left.pop(node, [])
        for rule in self._rules.lowering(op_of(node)):
            if rule.name in self._disabled:
                refusals.append(Tried(rule.name, "disabled by you"))
            elif not rule.form.holds(facts):
                refusals.append(Tried(rule.name, f"takes only [{rule.form}]"))
            else:
                built = self._attempt(
                    rule, node, judgement.form, graph, facts=facts, tried=refusals
                )
                if isinstance(built, list):
                    return built
                refusals.append(Tried(rule.name, built))
        self.report.stuck.append(
            StuckNode(node.name or "", op_of(node), judgement.form, judgement.why, tuple(refusals))
        )
        return []

    # -- one site --------------------------------------------------------------------------------

    def _attempt(
        self,
        rule: Rule,
        node: ir.Node,
        form: str,
        graph: ir.Graph | ir.Function,
        match: Match | None = None,
        facts: Facts | None = None,
        tried: Sequence[Tried] = (),
    ) -> list[ir.Node] | str:
        """Build and commit one site; the new nodes, or the reason for leaving it."""
        step = (rule.name, op_of(node), form)
        chain: tuple[tuple[str, str, str], ...] = (*node.meta.get(CHAIN, ()), step)
        if step in chain[:-1]:
            return f"the node came from this rule at this form: {_printed(chain)}"
        if self._budget == 0:
            raise RuleError(f"rules do not come to an end; the last chain is {_printed(chain)}")
        space = self._spaces[id(graph)]
        try:
            own = self._imports(graph)
            imports = self._imports_for(rule, graph, own)
            known = facts if imports == own else None
            commit = attempt(rule, node, form, space, imports, match, known)
        except (Refusal, NotRaisable) as reason:
            return str(reason)
        unwanted = (
            self._unwanted(rule, match, commit, imports)
            if match
            else self._idle(node, rule, commit, imports)
        )
        if unwanted:
            commit.discard()
            return unwanted
        self._budget -= 1
        if isinstance(graph, ir.Graph):
            self.model.opset_imports[""] = imports.get("", 1)
        fired = self._fired(rule, node, form, commit)
        others = tuple(n.name or "" for n in match.nodes if n is not node) if match else ()
        self.report.fired.append(replace(fired, others=others, tried=tuple(tried)))
        self.report.notes += [note for note in commit.notes if note not in self.report.notes]
        built = commit.apply(space, meta={CHAIN: chain})
        self._scope(graph).add(built)
        return built

    def _imports_for(
        self, rule: Rule, graph: ir.Graph | ir.Function, imports: dict[str, int]
    ) -> dict[str, int]:
        """Imports at which the rule's ops exist; a function's are never raised."""
        opset = self._scope(graph).opset(imports, rule.opset)
        if isinstance(graph, ir.Function) and opset != imports.get("", 1):
            raise NotRaisable(
                f"needs opset {rule.opset}, and the function {graph.name} has {imports.get('', 1)}"
            )
        return {**imports, "": opset}

    def _fired(self, rule: Rule, node: ir.Node, form: str, commit: Commit) -> Fired:
        signature = commit.signature()
        new = self._keep_sites and commit.used and signature not in self._signatures
        self._signatures.add(signature)
        before, after = commit.both_sides(self.model) if new else (None, None)
        return Fired(
            rule.name, op_of(node), node.name or "", form, signature, before, after, rule.tolerance
        )

    def _tidy(self, *, changed: bool) -> None:
        """Sort, and drop what nothing uses any more; graph inputs and outputs stay."""
        outer: list[ir.Graph | ir.Function] = [self.model.graph, *self.model.functions.values()]
        for graph in outer:
            if not in_order(graph):
                graph.sort()  # and what is inside
        if changed:
            remove_unused(self.model)

    def _lower_opset(self) -> bool:
        """Bring the model down to the opset the target takes, if nothing newer is left."""
        ceiling = self.target.opset
        if ceiling is None or self.report.stuck:
            return False
        for function in self.model.functions.values():
            lower_imports(function.opset_imports, function, ceiling)
        nodes = (node for graph in graphs_of(self.model) for node in graph)
        lower_imports(self.model.opset_imports, nodes, ceiling)
        if self._opset <= ceiling:
            return False
        self.model.ir_version = min(self.model.ir_version, ir_version_of(ceiling))
        self.report.notes.append(f"the opset was lowered from {self._opset} to {ceiling}")
        return True


def _printed(chain: Sequence[tuple[str, str, str]]) -> str:
    """A chain of rules; only its ends, if it is long."""
    steps = [f"{rule}({op} [{form}])" for rule, op, form in chain]
    return " -> ".join(steps if len(steps) <= 8 else [*steps[:3], "...", *steps[-3:]])
