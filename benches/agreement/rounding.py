#!/usr/bin/env python3
"""Measures how rounding to bfloat16 changes a model's logits, at each place alone and at all places but one.

    .venv-tools/bin/python benches/agreement/rounding.py HF [--pairs 8] [--tokens 24]

A processor that computes in bfloat16 multiplies rounded numbers, sums in float32, and rounds the sum. Here, torch
computes in float32, and the script rounds numbers in between, so it runs on any machine.

| place | rounded |
|---|---|
| weights | matrices and embedding tables |
| products in | the inputs of linear layers |
| products out | the outputs of linear layers |
| attention | queries, keys, values, scores before the softmax, and the weighted sum |
| softmax | the output of the softmax |
| gelu | the output of the activation |
| sums | the sum of a layer and its residual |
| norms | the output of a normalization |
| head | all of the above in the final classifier |

Each error is a difference from the float32 logits of random token pairs, in standard deviations of these logits. The
table shows the largest and the mean error.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

sys.path.insert(0, str(Path(__file__).resolve().parent / "../../tools"))

PLACES = ("weights", "products in", "products out", "attention", "softmax", "gelu", "sums", "norms", "head")


def rounded(values: torch.Tensor) -> torch.Tensor:
    """Rounds to bfloat16 and returns float32."""
    return values.bfloat16().float() if values.is_floating_point() else values


class Rounding(TorchFunctionMode):
    """Rounds the results of torch's functions at the named places."""

    def __init__(self, places: set[str]):
        super().__init__()
        self.places, self.in_head = places, False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Intercepts each torch function."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        here = lambda place: ("head" if self.in_head else place) in self.places  # noqa: E731
        if name == "linear":
            values, weight, *rest = args
            values = rounded(values) if here("products in") else values
            weight = rounded(weight) if here("weights") else weight
            return self.out(func(values, weight, *rest, **kwargs), here("products out"))
        if name == "embedding":
            return self.out(func(*args, **kwargs), here("weights"))
        if name in ("matmul", "bmm", "__matmul__"):
            if here("attention"):
                args = [rounded(values) for values in args]
            return self.out(func(*args, **kwargs), here("attention"))
        place = {"softmax": "softmax", "gelu": "gelu", "layer_norm": "norms", "add": "sums", "__add__": "sums"}.get(
            name
        )
        found = func(*args, **kwargs)
        if place is None or not isinstance(found, torch.Tensor) or found.dim() < 3:
            return found
        if place == "sums" and found.dim() == 4:  # attention scores plus their mask
            place = "attention"
        return self.out(found, here(place))

    @staticmethod
    def out(found: torch.Tensor, is_rounded: bool) -> torch.Tensor:
        """Rounds the result if `is_rounded`."""
        return rounded(found) if is_rounded else found


def main() -> None:
    """Prints the errors as a table."""
    arguments = parse()
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(
        arguments.hf, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    torch.manual_seed(1)
    ids = torch.randint(10, model.config.vocab_size, (arguments.pairs, arguments.tokens))
    ids[:, 0], ids[:, -1] = 0, model.config.eos_token_id or 2
    exact = logits_of(model, ids, set())
    spread = exact.std().item()
    print(f"{arguments.pairs} pairs of {arguments.tokens} tokens, spread of the logits {spread:.2f}\n")
    print(
        "| place | rounded there alone: largest | mean | everywhere but there: largest | mean |\n|---|---|---|---|---|"
    )
    for place in (None, *PLACES):
        alone = set(PLACES) if place is None else {place}
        cells = []
        for places in (alone, set(PLACES) - {place} if place else None):
            if places is None:
                cells += ["", ""]
                continue
            off = (logits_of(model, ids, places) - exact).abs() / spread
            cells += [f"{off.max().item():.3f}", f"{off.mean().item():.3f}"]
        print(f"| {place or 'everywhere'} | {' | '.join(cells)} |", flush=True)


@torch.no_grad()
def logits_of(model: torch.nn.Module, ids: torch.Tensor, places: set[str]) -> torch.Tensor:
    """Returns the logits with rounding at these places, pair by pair."""
    mode = Rounding(places)
    head = getattr(model, "classification_head", None) or getattr(model, "classifier", None)
    hooks = [
        head.register_forward_pre_hook(lambda *_: setattr(mode, "in_head", True)),
        head.register_forward_hook(lambda *_: setattr(mode, "in_head", False)),
    ]
    try:
        with mode:
            return torch.cat([model(input_ids=row[None]).logits for row in ids])
    finally:
        for hook in hooks:
            hook.remove()


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hf", help="the model, as a Hugging Face folder")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=24)
    return parser.parse_args()


if __name__ == "__main__":
    main()
