"""Which numbers a training multiplies: float32, or half as many bits where the device is faster with them.

In goes what the command line asks for; out comes what accelerate calls it. Weights, gradients and the optimizer stay in
float32 in each case.
"""

import torch

from models.errors import InputError

# Forward and back, torch's fused attention takes three to four times as long in bf16 on a CPU as plain products do.
CPU_ATTENTION = "eager"
NAMES = {"no": "fp32", "bf16": "bf16", "fp16": "fp16"}  # accelerate's, and those of --precision


def precision_of(wish: str) -> str:
    """`auto`: bf16 where the device is faster in it, else fp16 on a GPU, else float32. Raises `InputError`."""
    on_gpu = torch.cuda.is_available()
    if wish == "fp16" and not on_gpu:
        raise InputError("--precision fp16 is for GPUs, and there is none: take bf16 or fp32")
    if wish == "auto":
        wish = "bf16" if has_fast_bf16() else "fp16" if on_gpu else "fp32"
    return next(name for name, known in NAMES.items() if known == wish)


def has_fast_bf16() -> bool:
    """Whether the device multiplies bf16 numbers faster than float32.

    A CPU without instructions for bf16 imitates it, and is slower. Intel's CPUs need AMX, which a virtual machine may hide:
    a Xeon with `avx512_bf16` alone multiplied bf16 at 0.6 times the speed of float32 (benches/results/training.md).
    """
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    known = torch.cpu.get_capabilities()
    by_vectors = known.get("avx512_bf16") and "Intel" not in known.get("cpu_name", "")
    return bool(by_vectors or known.get("amx_bf16"))
