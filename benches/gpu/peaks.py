#!/usr/bin/env python3
"""How near the rungs of a ladder come to what a GPU can do in float16.

    peaks.py LADDER.JSON

For each rung: the operations that the job takes at least (benches/ladder/rungs.py counts them), in a second, and as a
share of what the makers promise for products of dense matrices, and of what large products really reached on an H200.
"""

import json
import sys
from pathlib import Path

PEAKS = {  # TFLOP/s, float16, dense
    "H100 PCIe": 756,  # https://resources.nvidia.com/en-us-gpu-resources/h100-datasheet-24306
    "H100 SXM, H200": 989,  # the same chip; the H200 has more memory
    "H200, measured": 790,  # large products in bfloat16
}


def main() -> int:
    """Print a table."""
    found = json.loads(Path(sys.argv[1]).read_text())
    print(f"{found['posts']} posts, {found['tflop']:.3g} TFLOP")
    print(f"| rung | TFLOP/s | {' | '.join(f'of {name} ({peak})' for name, peak in PEAKS.items())} |")
    print("|---" * (2 + len(PEAKS)) + "|")
    for rung in found["rungs"]:
        speed = found["tflop"] / (rung["s/post"] * found["posts"]) if rung["s/post"] else float("nan")
        shares = " | ".join(f"{speed / peak:.1%}" for peak in PEAKS.values())
        print(f"| {rung['rung']} | {speed:.3g} | {shares} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
