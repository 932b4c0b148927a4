"""What a session gets, and what is refused before one is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewriter import placement
from rewriter.compiling import choose, require_compiler
from rewriter.errors import BadInput

emulated = pytest.mark.skipif(not placement.emulated(), reason="a device has its own SoC")


@pytest.mark.parametrize("name", ["69", "SM8750", "sm8750"])
def test_a_soc_by_id_and_by_chip(name: str) -> None:
    chosen = choose({}, name, "2.7.0")
    assert str(chosen.soc) == "SM8750 (69, v79)"
    assert chosen.options == {"soc_model": "69", "htp_arch": "79"}


def test_an_architecture_that_the_provider_cannot_read_is_left_to_the_soc() -> None:
    assert choose({}, "69", "2.6.0").options["htp_arch"] == "0"
    assert choose({}, "SM8975", "2.7.0").options["htp_arch"] == "0"


@emulated
def test_the_emulator_always_has_a_soc() -> None:
    assert choose({}, None, "2.7.0").options == {"soc_model": "60", "htp_arch": "73"}
    assert choose({"soc_model": "0"}, None, "2.7.0").soc is None


def test_a_soc_of_the_options() -> None:
    assert choose({"soc_model": "36"}, None, "2.7.0").options["htp_arch"] == "69"
    assert choose({"soc_model": "36"}, "SM8450", "2.7.0").options["soc_model"] == "36"


@pytest.mark.parametrize(
    ("options", "name", "version", "said"),
    [
        ({}, "999", "2.7.0", r"--soc 999: qnn knows no SoC '999'; known: 30 SM8350, .*60 SC8380XP"),
        ({}, "sm8651", "2.7.0", r"did you mean SM8650\?"),
        ({}, "123", "2.6.0", r"SM7950 \(123, v81\) is known to qnn >=2\.7, not to 2\.6\.0"),
        ({"soc_model": "14"}, None, "2.7.0", r"--option soc_model=14: qnn knows no SoC '14'"),
        ({"soc_model": "xyz"}, None, "2.7.0", r"knows no SoC 'xyz'"),
        ({"soc_model": "60"}, "69", "2.7.0", r"--soc 69 and --option soc_model=60 are two SoCs"),
        ({"htp_arch": "73"}, "69", "2.7.0", r"htp_arch=73 is not SM8750 \(69, v79\)'s"),
        ({"htp_arch": "79", "soc_model": "0"}, None, "2.6.0", r"2\.6\.0 cannot read it"),
        ({"vtcm": "8"}, None, "2.7.0", r"--option vtcm=8: .*no such option \(did you mean vtcm_mb"),
        ({"vtcm_mb": "much"}, None, "2.7.0", r"'much' is no value of it: number"),
        ({"htp_performance_mode": "xyz"}, None, "2.7.0", r"'xyz' is no value of it: burst, "),
        ({"op_affinity": "a.json"}, None, "2.5.0", r"2\.5\.0 does not read it, only >=2\.6 does"),
        ({"op_affinity": "no/a.json"}, None, "2.7.0", r"there is no such file or folder"),
    ],
)
def test_refused_by_name(
    options: dict[str, str], name: str | None, version: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        choose(options, name, version)


def test_what_changes_the_result_is_stated(tmp_path: Path) -> None:
    file = tmp_path / "affinity.json"
    file.write_text("{}")
    given = {
        "vtcm_mb": "8",
        "op_affinity": str(file),
        "enable_htp_fp16_precision": "0",
        "soc_model": "60",
    }
    chosen = choose(given, None, "2.7.0")
    assert chosen.stated == (f"op_affinity={file}", "enable_htp_fp16_precision=0")
    assert chosen.plain == {"vtcm_mb": "8", "enable_htp_fp16_precision": "0"}


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text("{}")
    chosen = choose({"op_affinity": "a.json"}, None, "2.7.0")
    assert chosen.options["op_affinity"] == str(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("ep", "said"),
    [
        ("openvino", "holds no compiler for the NPU"),
        ("openvino-ep", "compiles where the model is loaded"),
        ("ort-cpu", "runs the graph as it is"),
        ("ort-cuda", "run the graph as it is"),
        ("onnx-standard", "is no runtime"),
        ("acme", "acme has no compiler that runs offline"),
    ],
)
def test_other_targets_are_refused_with_the_reason(ep: str, said: str) -> None:
    require_compiler("qnn")
    with pytest.raises(BadInput, match=said):
        require_compiler(ep)
