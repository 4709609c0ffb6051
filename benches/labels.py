"""How good labels are where a label set lacks topics: with and without the background, and with suggested labels.

    python3 benches/labels.py POSTS.ndjson [PROGRAM]

POSTS has a JSON object a line with `id`, `title`, `selftext` and `topic`. Five of its topics have a label of
pipelines/sixteen-topics.toml with its first description: what a user would write. All other posts are out of scope.
"Decoys" are the eleven other labels: what a user would have to know. Then `labels suggest` looks for the topics without
a label, and its labels are used as they were written; each counts for the topic that most of its posts have.
"""

import collections
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from common import TOP

TOPICS = tomllib.loads((TOP / "pipelines/sixteen-topics.toml").read_text())["topic"]
FIVE = ["gaming", "food", "movies", "finance", "sports"]
PRECISION = 0.9


def pipeline(path: Path, slugs, background: str) -> Path:
    """Writes a pipeline file with some of the sixteen labels."""
    lines = ['name = "five"', 'mode = "single"', f'background = "{background}"']
    for topic in TOPICS:
        if (slug := topic["slug"]) in slugs:
            lines += ["[[topic]]", f'slug = "{slug}"', f"label = {json.dumps(topic['label'])}"]
            lines += [f'subreddits = ["{slug}"]', f"descriptions = {json.dumps(topic['descriptions'][:1])}"]
    path.write_text("\n".join(lines))
    return path


def outcomes(program: str, posts: str, gold: list, folder: Path) -> None:
    """Prints the share of right outcomes, in and out of scope, and of labels kept at a precision of 90 %."""
    print("| | right outcome | in scope | out of scope | in scope, kept at 90 % precision |\n|---|---|---|---|---|")
    for name, slugs, background in [
        ("five labels", FIVE, "none"),
        ("five labels, background `reddit`", FIVE, "reddit"),
        ("five labels, eleven decoys", [topic["slug"] for topic in TOPICS], "none"),
    ]:
        file, out = pipeline(folder / "p.toml", slugs, background), folder / "out.ndjson"
        subprocess.run([program, "score", posts, out, "--overwrite", "--pipeline", file], check=True)
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        labels = [row["label"] if row["label"] in FIVE else None for row in rows]
        right = [label == wanted for label, wanted in zip(labels, gold)]
        inside, outside = ([r for r, g in zip(right, gold) if (g is None) == out] for out in (False, True))
        best, kept = 0, 0
        order = sorted((i for i, label in enumerate(labels) if label), key=lambda i: -rows[i]["score"])
        for n, i in enumerate(order, 1):
            kept += right[i]
            best = kept if kept >= PRECISION * n else best
        figures = [*(sum(of) / max(1, len(of)) for of in (right, inside, outside)), best / max(1, len(inside))]
        print(f"| {name} | " + " | ".join(f"{figure:.3f}" for figure in figures) + " |")


def suggestions(program: str, rows: list[dict], folder: Path) -> None:
    """Prints how many of the topics without a label the suggested labels find, and how right they are."""
    five, more, file = pipeline(folder / "five.toml", FIVE, "reddit"), folder / "more.toml", folder / "posts.ndjson"
    file.write_text("\n".join(json.dumps({**row, "subreddit": "test", "created_utc": 1400000000}) for row in rows))

    def run(*words) -> str:
        command = [program, "-q", "--database", f"sqlite:{folder}/posts.db", *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    run("db", "create")
    run("import", file)
    run("classify", "--pipeline", five)
    found = json.loads(run("labels", "suggest", "--label-set", five, "--limit", "100", "--format", "json", "--out", more))
    run("classify", "--pipeline", more, "--make-current")
    topics = collections.defaultdict(collections.Counter)
    for row in json.loads(run("sql", "SELECT topic, outcome FROM labeled_posts", "--format", "json")):
        topics[row["outcome"]][row["topic"]] += 1
    slugs = [slug for slug in topics if slug not in [*FIVE, "other", "unsure"]]
    right = [topics[slug].most_common(1)[0] for slug in slugs]
    names = {topic for slug, (topic, n) in zip(slugs, right) if topic not in FIVE and 2 * n >= topics[slug].total()}
    hidden, given = {row["topic"] for row in rows} - set(FIVE), sum(topics[slug].total() for slug in slugs)
    print(f"\nposts {len(rows)}, other {found['posts']}, clusters {len(found['clusters'])}, cut {found['cut']:.2f}")
    print(f"in a cluster: {found['clustered'] / found['posts']:.3f} of the posts that are other")
    print(f"topics found: {len(names)} of {len(hidden)}; missing: {', '.join(sorted(hidden - names)) or 'none'}")
    print(f"by suggested labels: {given} posts, {sum(n for _, n in right) / given:.3f} of them of the label's topic")
    kept = sum(topics[slug][slug] for slug in FIVE) / sum(row["topic"] in FIVE for row in rows)
    print(f"in scope with the right label: {kept:.3f}")


if __name__ == "__main__":
    posts, program = sys.argv[1], (sys.argv[2:] or ["target/release/topicmill"])[0]
    rows = [json.loads(line) for line in Path(posts).read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        gold = [row["topic"] if row["topic"] in FIVE else None for row in rows]
        outcomes(program, posts, gold, Path(folder))
        suggestions(program, rows, Path(folder))
