from __future__ import annotations

import pytest

from capabilities.options import BadOption, option, options


def test_the_table_says_what_it_must() -> None:
    found = options("qnn")
    assert len({o.name for o in found}) == len(found)
    assert {o.changes for o in found} == {"", "numbers", "placement", "device"}
    assert all(o.about for o in found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vtcm_mb", "8"),
        ("htp_graph_finalization_optimization_mode", "3"),
        ("htp_performance_mode", "burst"),
        ("soc_model", "SM8750"),
        ("op_affinity", "a.json"),
    ],
)
def test_it_is_read(name: str, value: str) -> None:
    found = option("qnn", name, value, "2.7.0")
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("name", "value", "version", "said"),
    [
        ("not_an_option", "1", "2.7.0", "qnn reads no such option"),
        ("enable_htp_weight_sharing", "1", "2.7.0", "qnn reads no such option"),
        ("htp_perf_mode", "burst", "2.7.0", r"did you mean htp_performance_mode\?"),
        ("op_affinity", "a.json", "2.5.0", r"qnn 2\.5\.0 does not read it, only >=2\.6 does"),
        ("htp_reused_io_limit_mb", "1", "2.6.0", r"only >=2\.7 does"),
        ("vtcm_mb", "-1", "2.7.0", "'-1' is no value of it: number"),
        ("enable_htp_fp16_precision", "true", "2.7.0", "'true' is no value of it: 0, 1"),
        ("htp_graph_finalization_optimization_mode", "4", "2.7.0", "no value of it: 0, 1, 2, 3"),
        ("profiling_file_path", "", "2.7.0", "'' is no value of it: path"),
    ],
)
def test_it_would_be_ignored(name: str, value: str, version: str, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        option("qnn", name, value, version)


def test_other_eps_check_names_themselves() -> None:
    assert option("openvino", "ANYTHING", "1", "2026.4.1") is None
