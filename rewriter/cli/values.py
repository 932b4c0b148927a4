"""What a word of the command line has to be: each reads one, or says what is wrong with it."""

from __future__ import annotations

import argparse
import math
from typing import Literal

from rewriter.settings import MASK_VALUES


def minutes(text: str) -> float:
    """A time that something can be done in."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not (math.isfinite(minutes) and minutes > 0):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no time above 0; to run nothing, give --parity none --no-place"
        )
    return minutes


def ids(text: str) -> list[int]:
    """Token ids, at least one."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) < 1 << 31 for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of token ids such as 1,2,3")
    return [int(word) for word in words]


def size(text: str) -> int:
    """A length, which is at least 1."""
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 1")
    return int(text)


def parts(text: str) -> int | Literal["auto"]:
    """How many parts of layers."""
    return "auto" if text == "auto" else size(text)


def mask_value(text: str) -> float:
    """A number that hides a key, and stays finite beside a score in fp16."""
    low, high = MASK_VALUES
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from {low:g} to {high:g}")
    return value


def share(text: str) -> float:
    """A number between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number between 0 and 1")
    return value


def seed(text: str) -> int:
    """A seed, which numpy wants to be 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 0")
    return int(text)
