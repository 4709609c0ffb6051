#!/usr/bin/env python3
"""Times a post with 16 labels: the pipeline pair by pair, the exporter's graph, and the graphs of a model folder.

Everything runs on one thread. The pipeline computes one pair at a time, its default; the graphs compute full batches.
The pipeline and the graphs alternate, so that other load affects them equally, and the shortest CPU time is reported.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from models import QUIET

os.environ |= QUIET | {"OMP_NUM_THREADS": "1"}

import numpy as np
import torch
from transformers import pipeline

from models.export import exported_source, save_graph
from models.inputs import feed
from models.quantize import quantized
from models.source import read_source
from models.texts import FILLER
from models.verify import open_session, torch_logits
from parity.cases import ABOUT, SIXTEEN


def measure(source, sessions: dict, tokens: int, arguments: argparse.Namespace) -> None:
    """Measures one length: every pair is truncated to exactly `tokens`."""
    text = FILLER * (tokens // 10 + 1)
    pairs = [source.pair(text, ABOUT.format(label), tokens) for label in SIXTEEN]
    assert {len(pair.ids) for pair in pairs} == {tokens}
    expected = np.concatenate([torch_logits(source, pair) for pair in pairs])
    source.tokenizer.model_max_length = tokens  # where the pipeline truncates
    reference = pipeline("zero-shot-classification", model=source.model, tokenizer=source.tokenizer, device="cpu")
    runs = {"pipeline": lambda: reference(text, candidate_labels=SIXTEEN, hypothesis_template=ABOUT)}
    errors = {"pipeline": 0.0}
    for name, session in sessions.items():
        names, rows = [entry.name for entry in session.get_inputs()], max(1, arguments.batch_tokens // tokens)
        batches = [feed(names, pairs[start : start + rows], source.filling) for start in range(0, len(pairs), rows)]
        runs[name] = lambda session=session, batches=batches: np.concatenate(
            [session.run(["logits"], batch)[0] for batch in batches]
        )
        errors[name] = float(np.abs(runs[name]() - expected).max())  # also warms up
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    for name, seconds in best.items():
        ratio = best["pipeline"] / seconds
        print(f"| {tokens} | {name} | {seconds:.2f} | {ratio:.2f} | {errors[name]:.1e} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of the Hugging Face NLI model")
    parser.add_argument("made", type=Path, metavar="FOLDER", help="the model folder made from it")
    parser.add_argument("--tokens", type=int, nargs="+", default=[24, 127], metavar="N", help="tokens per pair")
    parser.add_argument("--batch-tokens", type=int, default=512, metavar="N", help="token budget per batch")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    source = read_source(arguments.model)
    with tempfile.TemporaryDirectory(dir=arguments.made.parent) as scratch:
        graphs = {name: arguments.made / f"{name}.onnx" for name in ("cpu-fp32", "cpu-int8")}
        for precision in ("fp32", "int8"):
            graphs[f"exported, {precision}"] = Path(scratch, f"{precision}.onnx")
        save_graph(exported_source(source, "fp32"), graphs["exported, fp32"])
        save_graph(quantized(graphs["exported, fp32"]), graphs["exported, int8"])
        sessions = {name: open_session(path, threads=1) for name, path in graphs.items()}
        print("| tokens per pair | graph | s/post | times as fast | largest logit error |\n|---|---|---|---|---|")
        for tokens in arguments.tokens:
            measure(source, sessions, tokens, arguments)
