"""Weights on a grid, so that a folder is small: eight bits for matrices, four for the embeddings of tokens.

In goes a network; its weights are rounded in place. The program computes with them in single precision, as with any
others, and `models.packed` stores them in as few bits as the grid has.
"""

import torch
from torch import nn

from models.packed import GROUP


@torch.no_grad()
def round_embeddings(model: nn.Module) -> None:
    """Embeddings of tokens to four bits, before training, which then begins with what is stored."""
    table = model.get_input_embeddings().weight
    groups = table.view(len(table), -1, GROUP)
    scales = (groups.abs().amax(-1, keepdim=True) / 7).half().float()
    scales[scales == 0] = 1
    groups.copy_((groups / scales).round().clamp(-7, 7) * scales)


@torch.no_grad()
def round_matrices(model: nn.Module) -> None:
    """The other matrices to eight bits, after training; the head and the rarities stay as they are."""
    tokens = model.get_input_embeddings()
    for part in model.base_model.modules():
        if isinstance(part, nn.Linear | nn.Embedding) and part is not tokens:
            round_rows(part.weight)
    if model.words is not None:
        round_rows(model.words.shares.weight)


@torch.no_grad()
def round_rows(matrix: torch.Tensor) -> None:
    """Each row to the 255 values between its largest and the opposite of that."""
    scales = matrix.abs().amax(1, keepdim=True) / 127
    scales[scales == 0] = 1
    matrix.copy_((matrix / scales).round() * scales)
