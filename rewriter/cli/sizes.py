"""Dims and phases that options ask for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rewriter.cli.common import dims_of
from rewriter.errors import BadInput
from rewriter.source import Source


def sizes_of(options: argparse.Namespace, sources: Sequence[Source]) -> dict[str, Any]:
    """What :class:`~rewriter.settings.Settings` needs to know of sizes.

    Raises:
        BadInput: sizes of a cache, and no graph that has one.
    """
    built = any(source.built for source in sources)
    if (options.seq or options.max_seq_len) and not options.static and not built:
        raise BadInput("--seq and --max-seq-len are sizes of --static; say which graphs you want")
    return {
        "dims": dims_of(options),
        "static": options.static,
        "seq": options.seq,
        "max_seq_len": options.max_seq_len,
    }
