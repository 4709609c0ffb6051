"""Whether `labels suggest` finds the topics that a label set lacks.

    python3 benches/suggest/run.py POSTS.ndjson [PROGRAM]

POSTS has a JSON object a line with `id`, `title`, `selftext` and `topic`. Five of its topics have a label, as in
benches/background/run.py; the other topics are there to be found. The suggested labels are then used as they were written,
without a word by hand, and each counts for the topic that most of its posts have.
"""

import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "background"))
from run import FIVE, pipeline  # noqa: E402

LIMIT = "100"


def main():
    posts = sys.argv[1]
    program = sys.argv[2] if len(sys.argv) > 2 else "target/release/topicmill"
    rows = [json.loads(line) for line in Path(posts).read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        five, more, file = (str(Path(folder, name)) for name in ("five.toml", "more.toml", "posts.ndjson"))
        Path(five).write_text(pipeline(FIVE, "reddit")[0])
        line = lambda row: json.dumps({**row, "subreddit": "test", "created_utc": 1400000000})
        Path(file).write_text("\n".join(map(line, rows)))

        def run(*args):
            command = [program, "-q", "--database", f"sqlite:{folder}/posts.db", *args]
            return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

        run("db", "create")
        run("import", file)
        run("classify", "--pipeline", five)
        suggest = ["labels", "suggest", "--label-set", five, "--limit", LIMIT, "--format", "json"]
        found = json.loads(run(*suggest, "--out", more))
        run("classify", "--pipeline", more, "--make-current")
        labelled = json.loads(run("sql", "SELECT topic, outcome FROM labeled_posts", "--format", "json"))
        topics = collections.defaultdict(collections.Counter)
        for row in labelled:
            topics[row["outcome"]][row["topic"]] += 1
    slugs = [slug for slug in topics if slug not in [*FIVE, "other", "unsure"]]
    right = [topics[slug].most_common(1)[0] for slug in slugs]
    names = {topic for slug, (topic, n) in zip(slugs, right) if topic not in FIVE and 2 * n >= topics[slug].total()}
    hidden = {row["topic"] for row in rows} - set(FIVE)
    given = sum(topics[slug].total() for slug in slugs)
    print(f"posts {len(rows)}, other {found['posts']}, clusters {len(found['clusters'])}, cut {found['cut']:.2f}")
    print(f"in a cluster {found['clustered'] / found['posts']:.3f} of the posts that are other")
    print(f"topics found {len(names)} of {len(hidden)}; missing: {', '.join(sorted(hidden - names)) or 'none'}")
    print(f"by the suggested labels {given} posts, {sum(n for _, n in right) / given:.3f} of them of the label's topic")
    before = sum(row["topic"] in FIVE for row in rows)
    kept = sum(topics[slug][slug] for slug in FIVE)
    print(f"in scope with the right label: {kept / before:.3f}")


if __name__ == "__main__":
    main()
