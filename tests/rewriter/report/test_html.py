"""The HTML report: whole, without the network, readable without a mouse, and safe."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from rich.console import Console

from capabilities import target
from rewriter.activations.model import Divergence, KeptWeight, QuantizedActivations
from rewriter.cli import main
from rewriter.node_states import NodeState, Place
from rewriter.outcome import GraphOutcome, Outcome, Parity
from rewriter.parity.compare import Error
from rewriter.parity.model import ModelParity
from rewriter.parity.outputs import OutputParity
from rewriter.passes.fix_dims import Dims
from rewriter.placement import Placement
from rewriter.quantize.spec import WeightError
from rewriter.record import Report, StuckNode, Tried
from rewriter.report.html import html_page
from rewriter.report.html.headline import headline
from rewriter.report.text import show_plan
from tests.decoders import Decoder, decoder
from tests.graphs import Builder
from tests.rewriter.report.pages import Page, accessible, contrast

LAYERS = 35


def outcome(states: list[NodeState], parity: Parity | None = None) -> Outcome:
    """A run over one graph of these nodes."""
    report = Report(target("qnn", "2.7.0"))
    report.ops_before.update({"Attention": 1})
    report.ops_after.update(state.op for state in states)
    graph = GraphOutcome("model", "model.onnx", report, Dims(), parity=parity)
    graph.nodes = states
    return Outcome("m.onnx", report.target, graphs=[graph])


def layers(count: int, where: Place = Place.EP) -> list[NodeState]:
    """A chain of layers of 30 nodes each."""
    names = [f"layers.{layer}/{n}" for layer in range(count) for n in range(30)]
    return [
        NodeState(
            name, f"Op{at % 30}", where, "any", "because", "rule", "node", (at - 1,) if at else ()
        )
        for at, name in enumerate(names)
    ]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page of a real run over 35 layers, and what the terminal showed; without a runtime."""
    folder = tmp_path_factory.mktemp("html")
    model, page = folder / "model.onnx", folder / "r.html"
    ir.save(decoder(Decoder(layers=LAYERS)), model)
    dims = ["--dim", "batch=1", "--dim", "seq=1", "--dim", "past=8"]
    words = [str(model), "--ep", "qnn@2.7.0", *dims, "--no-place"]
    screen = io.StringIO()
    with redirect_stdout(screen):
        assert main([*words, "-o", str(folder / "out"), "--report", str(page)]) == 0
    return page.read_text(encoding="utf-8"), screen.getvalue()


@pytest.fixture(scope="module")
def written(told: tuple[str, str]) -> str:
    return told[0]


def test_a_real_run_is_told(written: str) -> None:
    words = " ".join(" ".join(Page(written).words).split())
    assert "391 nodes before, 1592 after" in words
    assert "attention_primitives" in words
    assert "whole model: present.34.value" in words
    assert "4 bits, blocks of 32 176" in words
    assert "weights read in a run" in words
    assert "Ready. By what was measured, all 1,592 steps can run on qnn; it was not tried" in words
    assert "The answers are the original's (largest difference" in words
    assert "every node is legal, parity is good (exit 0)" in words
    assert "1592 nodes legal by the table" in words


def test_35_layers_are_one_picture_of_their_nodes(written: str) -> None:
    assert len(written.encode()) < 2_000_000
    found = re.search(r"(\d+) nodes repeat (\d+) times and are drawn once", written)
    assert found is not None
    period, count = int(found[1]), int(found[2])
    assert count >= LAYERS - 1
    assert len(Page(written).of("rect")) == 1592 - period * (count - 1)


def test_the_plot_has_a_column_for_every_layer(written: str) -> None:
    columns = [float(dot["cx"]) for dot in Page(written).of("circle")]
    assert len(columns) == 2 * LAYERS + 1  # keys, values, and the logits behind them
    assert len(set(columns)) == LAYERS + 1
    assert "rewritten (CPU, exact): worst" in written


def test_the_terminal_tells_the_same_within_40_lines(told: tuple[str, str]) -> None:
    lines = told[1].splitlines()
    assert len(lines) <= 40
    text = "\n".join(lines)
    for word in (
        *("attention_primitives", "391 before, 1592 after", "71 outputs", "blocks of 32"),
        *("sites", "dims", "bytes for a token", "every node is legal, parity is good"),
    ):
        assert word in text
    page = Page(told[0])
    worst = re.search(r"worst: (\S+) (\S+) of std", text)
    assert worst is not None
    assert f"{worst[2]} of std" in page.words


def test_what_stays_behind_fits_on_the_screen_too(capsys: pytest.CaptureFixture[str]) -> None:
    """35 layers of two stuck nodes each are two reasons, not 70."""
    report = Report(target("qnn", "2.7.0"))
    tried = (Tried("rule", "disabled by you"),)
    for layer in range(LAYERS):
        report.stuck += [
            StuckNode(f"layers.{layer}/a", "com.acme::A", "any", "no kernel", tried),
            StuckNode(f"layers.{layer}/b", "com.acme::B", "any", "no kernel", ()),
        ]
    show_plan(report, Console(width=200))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 12
    assert "  stuck: com.acme::A 'layers.0/a' and 34 more [any]: no kernel" in lines
    assert lines.count("         no rule lowers it") == 1


def test_it_needs_nothing_else(written: str) -> None:
    page = Page(written)
    assert not page.of("script")
    assert not page.of("link")
    assert not page.of("img")
    assert "@import" not in written
    assert "url(" not in written
    assert not re.search(r"(?:href|src)=\"(?!#)", written)


def test_every_box_leads_to_its_line(written: str) -> None:
    page = Page(written)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [link["href"] for link in page.of("a")]
    assert len(links) > 50
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_the_page_can_be_heard_and_used_without_a_mouse(written: str) -> None:
    accessible(written)
    page = Page(written)
    assert [box["aria-label"] for box in page.of("div") if box.get("class") == "scroll"] == [
        "Picture of the graph model",
        "Drift over the layers of model",
    ]
    inside = [link for link in page.of("a") if link["href"].startswith("#g1n")]
    numbers = [int(link["href"].removeprefix("#g1n")) for link in inside]
    assert numbers == sorted(numbers)  # the order of the focus is that of the table


def test_a_name_is_text_and_never_markup() -> None:
    evil = '<script>alert("1")</script>\x1b[31m'
    run = outcome([NodeState(evil, "Add", Place.CPU, "any", evil, "", evil, ())])
    run.graphs[0].report.stuck.append(StuckNode(evil, "Add", "any", evil, ()))
    run.model = evil
    text = html_page(run)
    assert "<script" not in text
    assert "\x1b" not in text
    assert evil.replace("\x1b", "\\x1b") in "".join(Page(text).words)


def test_35_layers_are_drawn_once_and_the_page_stays_small() -> None:
    run = outcome(layers(35))
    text = html_page(run)
    page = Page(text)
    assert "30 nodes repeat 35 times" in " ".join("".join(page.words).split())
    assert len(page.of("rect")) == 30
    assert len(text) < 100_000


def test_a_graph_without_end_stays_below_2_mb() -> None:
    states = [
        NodeState(
            f"node {n}" * 3, f"Op{n % 70}", Place.EP, "any", f"why {n} " * 12, "rule", "node", ()
        )
        for n in range(9000)
    ]
    text = html_page(outcome(states))
    assert "8000 more nodes are not drawn" in text
    assert len(text.encode()) < 2_000_000


def test_errors_are_plotted_by_output() -> None:
    def output(name: str, error: float) -> OutputParity:
        return OutputParity(name, Error(error, error, error, error), 1e-4, ok=True)

    outputs = (output("logits", 1e-6), output("present.0.key", 0.0))
    model = ModelParity(outputs, True, ("seed 0",), "settings", None)
    parity = Parity(model=model, device=(output("logits", 1e-2),))
    page = Page(html_page(outcome(layers(1), parity)))
    assert len(page.of("circle")) == 2
    places = [(float(dot["cx"]), float(dot["cy"])) for dot in page.of("circle")]
    assert places[0][0] < places[1][0]  # layer 0, then what belongs to none
    assert places[0][1] > places[1][1]  # no error at the bottom
    assert {"1e-2", "0", "logits"} <= set(page.words)


def test_a_model_without_caches_is_plotted_inside(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, (1, 4, 32))
    for layer in range(4):
        gain = b.const(f"layers.{layer}/gain", b.rng.uniform(0.5, 2, 32).astype(np.float32))
        product = b.linear(x, f"layers.{layer}/product", 32, 32, "fp32")
        mixed = b.op("Mul", product, gain, name=f"layers.{layer}/mul")
        name = "y" if layer == 3 else f"layers.{layer}/out"
        x = b.op("com.microsoft::QuickGelu", mixed, name=name, alpha=1.702)
    ir.save(b.model([(x, ir.DataType.FLOAT, (1, 4, 32))]), tmp_path / "m.onnx")
    page = tmp_path / "r.html"
    words = ["--ep", "onnx-standard", "--no-place", "-o", str(tmp_path / "o")]
    assert main([str(tmp_path / "m.onnx"), *words, "--report", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert len({dot["cx"] for dot in Page(text).of("circle")}) == 5  # and the output
    assert "inside: layers.2/product" in text


def test_colours_have_contrast_in_both_modes() -> None:
    """WCAG AA: 4.5 to 1 for text on what it stands on."""
    style = html_page(outcome([]))
    style = style[style.index("<style>") : style.index("</style>")]
    light, dark, _ = re.findall(r":root \{([^}]*)\}", style)  # the last one is for paper
    first = dict(re.findall(r"--(\w+): (#\w+)", light))
    for colours in (first, first | dict(re.findall(r"--(\w+): (#\w+)", dark))):
        for text in ("ink", "soft", "good", "bad", "warn", "first", "second"):
            assert contrast(colours[text], colours["back"]) >= 4.5, (text, colours)
        for box in ("ep", "legal", "unknown", "cpu", "wrong", "panel"):
            assert contrast(colours["ink"], colours[box]) >= 4.5, (box, colours)
        for text, box in (("good", "panel"), ("bad", "panel"), ("first", "unknown")):
            assert contrast(colours[text], colours[box]) >= 4.5, (text, box, colours)
        for text in ("soft", "good", "bad"):  # of a line that a box has led to
            assert contrast(colours[text], colours["target"]) >= 4.5, (text, colours)


def test_errors_of_weights_and_activations_are_told() -> None:
    run = outcome(layers(1))
    (graph,) = run.graphs
    graph.activations = QuantizedActivations(
        16,
        "3 prompts of prompts.txt",
        units={16: 80},
        floats={"RotaryEmbedding": "no row speaks of it"},
        kept=[KeptWeight("head/MatMul", "its scales are negative")],
        weights={"int4 in blocks": 7},
        divergence=Divergence(2e-7, 3e-5, 0.999, 640),
    )
    run.weight_errors = [
        WeightError("layers.0/up", ("n",), 4, 32, "rtn", rms=0.072, steps=0.5),
        WeightError("layers.0/down", ("n",), 8, 32, "rtn", rms=0.0041, steps=0.5, rms4=0.31),
        WeightError("layers.0/gain", ("n",), note="too small"),
    ]
    text = html_page(run)
    words = " ".join(" ".join(Page(text).words).split())
    for told in (
        *("calibrated on 3 prompts of prompts.txt", "16 bits 80", "weights as int4 in blocks 7"),
        *("RotaryEmbedding in floats", "weight of head/MatMul 1 keeps its form: its scales"),
        "KL 2.0e-07 nats on average, 3.0e-05 at most; the same token is likeliest in 99.9 %",
        "layers.0/up 4 32 rtn 7.2e-02 0.50",
        "4 bits were off by 3.1e-01.",
        "layers.0/gain float column 0.0e+00 0.00 too small",
    ):
        assert told in words, told
    accessible(text)


def test_the_first_sentence_claims_what_was_seen() -> None:
    def output(error: float, *, ok: bool = True) -> OutputParity:
        return OutputParity("logits", Error(error, error, error, error), 1e-4, ok=ok)

    def placement(on_cpu: int) -> Placement:
        where = {"on_ep": 30 - on_cpu, "on_cpu": on_cpu, "cpu_ops": {"Op1": on_cpu}}
        rest = {"cpu_nodes": [], "reasons": {}, "partitions": 1, "outputs": [], "seconds": 1.0}
        return Placement("qnn", **where, **rest, full=not on_cpu)  # type: ignore[arg-type]  # loosely typed in tests

    run = outcome(layers(1))
    (graph,) = run.graphs
    assert "was not tried here. The answers were not compared" in headline(run)
    model = ModelParity((output(1e-6),), True, ("seed 0",), "settings", None)
    graph.parity, graph.placement = Parity(model=model, device=(output(2e-2),)), placement(0)
    assert headline(run) == (
        "Ready. Every step runs on qnn, none falls back to the processor. The answers are the "
        "original's (largest difference 1e-06 of their usual spread; 0.02 there)."
    )
    graph.placement = placement(4)
    assert "Not as expected" in headline(run)
    assert "26 steps run on qnn, 4 fall back to the processor." in headline(run)
    wrong = ModelParity((output(0.5, ok=False),), False, ("seed 0",), "settings", None)
    graph.parity = Parity(model=wrong)
    assert headline(run).startswith("Not ready: it could not be shown")
    assert "The answers differ from the original's, by up to 0.5" in headline(run)
