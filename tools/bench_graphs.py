#!/usr/bin/env python3
"""How long a post with 16 labels takes: the pipeline pair by pair, a plain export, and the graphs of a model folder.

Everything runs on one thread; pin the process to one core. The pipeline computes one pair at a time, as it does by
default, the graphs as many as fit the batch. The contestants take turns, so that what else the machine does hits
them alike, and the shortest time of each counts.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from models.quiet import QUIET

MODES = ("pipeline", "plain", "cpu-fp32", "cpu-int8")


def main() -> int:
    """Read the arguments, measure, print a table for each length."""
    arguments = parse()
    os.environ |= QUIET | {"OMP_NUM_THREADS": "1"}
    import torch

    from models.source import read_source

    torch.set_num_threads(1)
    source = read_source(arguments.model)
    print("| tokens a pair | what | s/post | against the pipeline | largest logit error |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=arguments.made.parent) as scratch:
        sessions = open_sessions(source, arguments.made, Path(scratch))
        for tokens in arguments.tokens:
            measure(source, sessions, tokens, arguments)
    return 0


def open_sessions(source, made: Path, scratch: Path) -> dict:
    """The plain export under stock settings, and the graphs of the folder under the manifest's."""
    import onnxruntime
    import torch

    from models.inputs import feed
    from models.texts import VECTORS
    from models.verify import open_session
    from parity.export import export_onnx

    pairs = [source.pair(premise, hypothesis) for premise, hypothesis in VECTORS]
    example = feed(["input_ids", "attention_mask"], pairs, source.filling)
    plain = scratch / "plain.onnx"
    export_onnx(source.model, {name: torch.from_numpy(values) for name, values in example.items()}, plain)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = {"plain": onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])}
    return sessions | {name: open_session(made / f"{name}.onnx", threads=1) for name in MODES[2:]}


def measure(source, sessions: dict, tokens: int, arguments: argparse.Namespace) -> None:
    """One length: every pair is cut to exactly `tokens`."""
    import numpy as np
    from transformers import pipeline

    from models.inputs import feed
    from models.texts import FILLER
    from models.verify import torch_logits
    from parity.cases import ABOUT, SIXTEEN

    text = FILLER * (tokens // 10 + 1)
    pairs = [source.pair(text, ABOUT.format(label), tokens) for label in SIXTEEN]
    assert {len(pair.ids) for pair in pairs} == {tokens}
    expected = np.concatenate([torch_logits(source, pair) for pair in pairs])

    source.tokenizer.model_max_length = tokens  # where the pipeline cuts
    reference = pipeline("zero-shot-classification", model=source.model, tokenizer=source.tokenizer, device="cpu")
    runs: dict[str, Callable[[], object]] = {
        "pipeline": lambda: reference(text, candidate_labels=SIXTEEN, hypothesis_template=ABOUT)
    }
    errors = {"pipeline": 0.0}
    for name, session in sessions.items():
        names = [entry.name for entry in session.get_inputs()]
        rows = max(1, arguments.batch_tokens // tokens)
        batches = [feed(names, pairs[start : start + rows], source.filling) for start in range(0, len(pairs), rows)]
        runs[name] = lambda session=session, batches=batches: np.concatenate(
            [session.run(["logits"], batch)[0] for batch in batches]
        )
        errors[name] = float(np.abs(runs[name]() - expected).max())  # also warms up

    times = {name: [] for name in MODES}
    for _ in range(arguments.rounds):
        for name in MODES:
            start = time.perf_counter()
            runs[name]()
            times[name].append(time.perf_counter() - start)
    for name in MODES:
        ratio = min(times["pipeline"]) / min(times[name])
        print(f"| {tokens} | {name} | {min(times[name]):.2f} | {ratio:.2f} | {errors[name]:.1e} |", flush=True)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of the Hugging Face model (BART)")
    parser.add_argument("made", type=Path, metavar="FOLDER", help="the model folder made from it")
    parser.add_argument("--tokens", type=int, nargs="+", default=[24, 127], metavar="N", help="tokens a pair")
    parser.add_argument("--batch-tokens", type=int, default=512, metavar="N", help="tokens a batch of a graph")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
