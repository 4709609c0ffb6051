#!/usr/bin/env python3
"""Draw what was measured as SVG: the sweep.json and the ladder.json in a folder, each if it is there.

    topicmill bench sweep --out FOLDER
    .venv-tools/bin/python benches/charts.py FOLDER

Letters are drawn as outlines and margins follow the longest name, so that a picture looks the same with any font.
Needs what tools/requirements.txt lists.
"""

import io
import json
import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt

plt.switch_backend("svg")
plt.rcParams |= {
    "svg.fonttype": "path",
    "svg.hashsalt": "topicmill",  # the same figures make the same file
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.12,  # inches
    "figure.constrained_layout.w_pad": 0.12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
}

BLUE = "#1f4e79"


def main() -> int:
    """Draw each file of the folder."""
    folder = Path(sys.argv[1])
    drawn = 0
    for name, draw in (("sweep.json", sweep), ("ladder.json", ladder)):
        if (folder / name).exists():
            draw(json.loads((folder / name).read_text()), folder)
            drawn += 1
    if not drawn:
        print(f"`{folder}` has neither sweep.json nor ladder.json", file=sys.stderr)
    return 0 if drawn else 2


def sweep(found: dict, folder: Path) -> None:
    """Write posts.svg and tokens.svg: posts a second by the size of a batch."""
    for by, title, below in (
        ("posts", "One label at a time, posts as they come", "posts in a batch"),
        ("tokens", "Pairs sorted by length", "padded tokens a batch may hold (each step doubles)"),
    ):
        rows = [row for row in found["settings"] if row["by"] == by]
        sizes, speeds = [row["size"] for row in rows], [row["posts/s"] for row in rows]
        figure, axes = plt.subplots(figsize=(7.2, 4))
        if by == "tokens":
            axes.set_xscale("log", base=2)
        axes.plot(sizes, speeds, color=BLUE, marker="o")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=0, top=max(speeds) * 1.1)
        axes.grid(axis="y", color="#ddd")
        axes.set(title=title, xlabel=below, ylabel="posts a second")
        if knee := found.get(f"knee_{by}"):
            axes.axvline(knee, color="#999", zorder=0)
            axes.annotate(f" knee: {knee:,}", (knee, 0), xytext=(0, 6), textcoords="offset points")
        save(figure, folder / f"{by}.svg")


def ladder(found: dict, folder: Path) -> None:
    """Write ladder.svg: a bar for each rung, the first one at the top."""
    rows = found["rungs"]
    figure, axes = plt.subplots(figsize=(7.2, 1 + 0.38 * len(rows)))
    bars = axes.barh([row["rung"] for row in rows], [row["times"] for row in rows], color=BLUE, height=0.65)
    axes.bar_label(bars, [f"{row['times']:.2f}\u00d7, {row['s/post']:.3f} s/post" for row in rows], padding=6)
    axes.invert_yaxis()
    axes.margins(x=0.4)  # room for what stands behind a bar
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set(title="The same posts, labels and weights", xlabel="times as fast as the lowest rung")
    save(figure, folder / "ladder.svg")


def save(figure, path: Path) -> None:
    """Write the picture without the time at which it was made, a group on a line."""
    svg = io.StringIO()
    figure.savefig(svg, metadata={"Date": None})
    plt.close(figure)
    short = re.sub(r"<!--.*?-->|\s+", " ", svg.getvalue())
    path.write_text(re.sub(r" (?=<g )", "\n", short) + "\n")


if __name__ == "__main__":
    sys.exit(main())
