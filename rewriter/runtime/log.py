"""What a runtime wrote to its log, turned into facts and into sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_VALIDATION = re.compile(r"Validation (PASSED|FAILED) for \d+ nodes? in ")
_NODE = re.compile(r"^\s*Operator type: (\S+) Node name: (.*) Node index: \d+")
_REASON = re.compile(r"^\s*REASON : (.*)")
_REPEATED_TAIL = re.compile(r"(?<=by QNN EP\.)\S+ node `.*$")
_ERROR = re.compile(r"\[[EF]:onnxruntime:[^\]]*\] (.*)")
_DDR_START = "DDR bandwidth summary"
_DDR_BYTES = re.compile(r"\b((?:spill|fill|write_total|read_total)_bytes)=(\d+)\s*$")

_STATUS = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE = re.compile(
    r"\S+\.(?:cc|cpp|h|hpp):\d+ (?:[\w:~<>&*,. ]+\([^)]*\)(?: const)? |[A-Z]\w+ )?"
)
_OPENVINO = re.compile(
    r"(?:Exception from|Check '.*?' failed at) \S+\.(?:cpp|hpp|h):\d+:\s*"
    r"|FrontEnd API failed with \w+:\s*"
    r"|While validating node '.*?' with friendly_name '.*?':\s*",
    re.DOTALL,
)
_STACK = re.compile(r"\s*(?:Stacktrace:|Traceback \(most recent call last\)).*", re.DOTALL)
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Log:
    """The facts of one log.

    Attributes:
        reasons: node name -> why the provider refused it; verbose logs only.
        ddr: the static memory traffic QNN prints for each partition it finalizes.
        errors: the runtime's own error lines, tidied.
        last: the last line of any text.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    ddr: tuple[dict[str, int], ...] = ()
    errors: tuple[str, ...] = ()
    last: str = ""


def read(lines: Iterable[str]) -> Log:
    """Read a log in one pass: a verbose one has thousands of lines for each partition."""
    reasons: dict[str, str] = {}
    refused: list[str] | None = None
    ddr: list[dict[str, int]] = []
    errors: dict[str, None] = {}
    last = ""
    for raw in lines:
        line = _COLOUR.sub("", raw).rstrip()
        last = line.strip() or last
        if validation := _VALIDATION.search(line):
            refused = [] if validation[1] == "FAILED" else None
        elif refused is not None and (node := _NODE.match(line)):
            refused.append(label(node[2], node[1]))
        elif refused is not None and (reason := _REASON.match(line)):
            reasons.update(dict.fromkeys(refused, _REPEATED_TAIL.sub("", reason[1]).strip()))
        elif _DDR_START in line:
            ddr.append({})
        elif ddr and (traffic := _DDR_BYTES.search(line)):
            ddr[-1][traffic[1]] = int(traffic[2])
        elif error := _ERROR.search(line):
            errors[sentence(error[1])] = None
    return Log(reasons, tuple(ddr), tuple(errors), sentence(last))


def label(name: str, op: str) -> str:
    """What a node is called; its type stands in where the model gives no name."""
    return name or f"unnamed {op.rpartition('::')[2]}"


def sentence(message: str) -> str:
    """A runtime's message without status codes, C++ sources and stack traces."""
    text = _STACK.sub("", message)
    text = _OPENVINO.sub("", text) or text
    text = " ".join(_SOURCE.sub("", _STATUS.sub("", text)).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"
