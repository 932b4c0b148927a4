"""Sites of float16: compared in float32 at the rule's own tolerance, and in their type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from rewriter.parity import sites as subject
from rewriter.parity.sites import SiteParity, check_sites
from rewriter.parity.widen import NotWidenable
from rewriter.passes.fix_dims import fix_dims
from rewriter.record import Fired
from tests.decoders import Decoder, decoder
from tests.rewriter.parity.halves import halved


def fired(head_size: int = 16) -> list[Fired]:
    """The sites of grouped queries in a float16 decoder."""
    model = halved(decoder(Decoder(weights="fp32", layers=1, head_size=head_size)))
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    found = lower(model, target("qnn", "2.7.0")).fired
    return [site for site in found if site.op.endswith("GroupQueryAttention")]


def checked(sites: list[Fired], folder: Path) -> SiteParity:
    """The comparison of the only site."""
    (found,) = check_sites(sites, folder, 0)
    return found


def with_wrong_scale(site: Fired, factor: float) -> Fired:
    """The site with the scale that its rule wrote off by a factor."""
    assert site.after is not None
    after = site.after.clone()
    scales = [v for name, v in after.graph.initializers.items() if "scale" in name]
    assert len(scales) == 1
    stored = scales[0].const_value
    assert stored is not None
    wrong = (stored.numpy().astype(np.float32) * factor).astype(np.float16)
    scales[0].const_value = ir.tensor(wrong, name=scales[0].name)
    return replace(site, after=after)


@pytest.mark.parametrize("head_size", [16, 48])
def test_right_sites(head_size: int, tmp_path: Path) -> None:
    """Room is left for a scale of 48^-0.5, which float16 does not have; 0.25 needs none."""
    (site,) = fired(head_size)
    found = checked([site], tmp_path)
    assert found.ok, found
    assert found.error is not None
    assert (found.tolerance > site.tolerance) == (head_size == 48)
    assert found.tolerance < 1e-3
    assert found.half is not None
    assert found.half.dtype == "float16"
    assert found.half.original is not None
    assert found.half.original.max_rel > 1e-5


@pytest.mark.parametrize("head_size", [16, 48])
def test_a_scale_off_by_three_thousandths(head_size: int, tmp_path: Path) -> None:
    """It is good enough for float16, and so it was once."""
    (site,) = fired(head_size)
    found = checked([with_wrong_scale(site, 1.003)], tmp_path)
    assert not found.ok
    assert found.error is not None
    assert found.error.max_rel > found.tolerance
    assert found.half is not None
    assert found.half.ok


def test_what_does_not_run_in_float32_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: ir.Model) -> ir.Model:
        raise NotWidenable("BitCast 'b' may mean the bits of a half")

    monkeypatch.setattr(subject, "widened", refuse)
    (site,) = fired()
    found = checked([site], tmp_path)
    assert found.ok
    assert found.half is None
    assert "BitCast 'b'" in found.note
    assert found.tolerance == site.tolerance * 400
