"""Greedy tokens from onnxruntime-genai; runs in an environment that has it, and imports no more.

Reads one JSON object from stdin: ``folder``, ``talks`` (each a list of steps: ids to append, or
how many tokens to generate), ``plugin`` (a module with a provider library, or nothing) and the
``name`` of its EP. Writes what each talk generated and the logits after it, or why
it stopped.
"""

import json
import sys
from importlib import import_module

import numpy as np
import onnxruntime_genai as og  # type: ignore[import-not-found]  # of another environment


def main() -> None:
    """Generate."""
    asked = json.load(sys.stdin)
    if asked["plugin"]:
        plugin = import_module(asked["plugin"])
        og.register_execution_provider_library(asked["name"], plugin.get_library_path())
    model = og.Model(asked["folder"])
    found = [_tokens(og.Generator(model, og.GeneratorParams(model)), t) for t in asked["talks"]]
    sys.stdout.write(json.dumps(found) + "\n")


def _tokens(generator: "og.Generator", talk: "list[list[int] | int]") -> "list[list[float]] | str":
    made: list[float] = []
    try:
        for step in talk:
            if isinstance(step, list):
                generator.append_tokens(np.array(step, np.int32))
                continue
            for _ in range(step):
                if not generator.is_done():
                    generator.generate_next_token()
                    made.append(int(generator.get_next_tokens()[0]))
        after = [] if generator.is_done() else generator.get_logits().reshape(-1).tolist()
    except RuntimeError as error:
        return str(error)
    return [made, after]


main()
