"""How often a post gets the right outcome with five labels, with and without the background.

    python3 benches/background/run.py POSTS.ndjson [PROGRAM]

POSTS has a JSON object a line with `id`, `title`, `selftext` and `topic`. The posts of five of its topics are in scope, all
others belong to none of the labels. The labels are five of pipelines/sixteen-topics.toml, with the first description of
each: what a user would write. "Decoys" are the eleven others, as labels: what a user would have to know.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIVE = ["gaming", "food", "movies", "finance", "sports"]
PRECISION = 0.9


def pipeline(slugs, background):
    topics = tomllib.loads((HERE / "../../pipelines/sixteen-topics.toml").read_text())["topic"]
    lines = ['name = "five"', 'mode = "single"', f'background = "{background}"']
    for topic in topics:
        if topic["slug"] in slugs:
            slug = topic["slug"]
            lines += ["[[topic]]", f'slug = "{slug}"', f'label = {json.dumps(topic["label"])}', f'subreddits = ["{slug}"]']
            lines += [f"descriptions = {json.dumps(topic['descriptions'][:1])}"]
    return "\n".join(lines), [topic["slug"] for topic in topics]


def score(program, posts, slugs, background):
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "p.toml"), Path(folder, "out.ndjson")
        file.write_text(pipeline(slugs, background)[0])
        subprocess.run([program, "score", posts, out, "--pipeline", file], check=True)
        return [json.loads(line) for line in out.read_text().splitlines()]


def measure(rows, gold):
    """Share of right outcomes, in scope alone, out of scope alone, and of kept labels at 90 % precision."""
    label = [row["label"] if row["label"] in FIVE else None for row in rows]
    right = [a == b for a, b in zip(label, gold)]
    share = lambda inside: sum(r for r, g in zip(right, gold) if (g is not None) == inside) / max(
        1, sum((g is not None) == inside for g in gold)
    )
    best, kept = 0, 0
    order = sorted((i for i in range(len(rows)) if label[i]), key=lambda i: -rows[i]["score"])
    for n, i in enumerate(order, 1):
        kept += right[i]
        if kept >= PRECISION * n:
            best = kept
    in_scope = sum(g is not None for g in gold)
    return sum(right) / len(right), share(True), share(False), best / in_scope


def main():
    posts = sys.argv[1]
    program = sys.argv[2] if len(sys.argv) > 2 else "target/release/topicmill"
    gold = [json.loads(line)["topic"] for line in Path(posts).read_text().splitlines()]
    gold = [topic if topic in FIVE else None for topic in gold]
    everything = pipeline([], "none")[1]
    print("| | right outcome | in scope | out of scope | in scope, kept at 90 % precision |\n|---|---|---|---|---|")
    for name, slugs, background in [
        ("five labels", FIVE, "none"),
        ("five labels, background `reddit`", FIVE, "reddit"),
        ("five labels, eleven decoys", everything, "none"),
    ]:
        figures = measure(score(program, posts, slugs, background), gold)
        print(f"| {name} | " + " | ".join(f"{x:.3f}" for x in figures) + " |")


if __name__ == "__main__":
    main()
