"""Pictures are readable whatever fonts there are."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import terminal_svg

CHARTS = Path(__file__).resolve().parents[2] / "benches" / "charts.py"


class TestPictures(unittest.TestCase):
    """What is drawn, read back from the SVG."""

    def test_each_word_has_the_place_and_the_width_of_its_cells(self):
        """A word's place does not depend on the letters before it."""
        svg = terminal_svg.draw(["\x1b[32m INFO\x1b[0m food <32>", "\x1b[2mil  W\x1b[0m"], 80)
        words = re.findall(r'<text x="([\d.]+)" y="[\d.]+" textLength="([\d.]+)"[^>]*>([^<]+)<', svg)
        cell, left = terminal_svg.CHAR_WIDTH, terminal_svg.MARGIN
        expected = [(1, 4, "INFO"), (6, 4, "food"), (11, 4, "&lt;32&gt;"), (0, 2, "il"), (4, 1, "W")]
        found = [(round((float(x) - left) / cell), round(float(width) / cell), word) for x, width, word in words]
        self.assertEqual(found, expected)

    def test_a_chart_has_outlines_for_letters_and_room_for_the_longest_name(self):
        """No font decides how wide a text is, and everything lies inside the picture."""
        row = {"s/post": 1.0, "times": 2.0}
        rungs = [row | {"rung": "short"}, row | {"rung": "a name that is longer than all the others are, by far"}]
        sizes = [{"by": by, "size": size, "posts/s": 9.0 - size} for by in ("posts", "tokens") for size in (1, 2, 4)]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "ladder.json").write_text(json.dumps({"rungs": rungs}))
            Path(folder, "sweep.json").write_text(json.dumps({"settings": sizes, "knee_posts": 1, "knee_tokens": None}))
            subprocess.run([sys.executable, CHARTS, folder], check=True)
            drawn = {path.name: path.read_text() for path in Path(folder).glob("*.svg")}
        self.assertEqual(set(drawn), {"ladder.svg", "posts.svg", "tokens.svg"})
        for svg in drawn.values():
            self.assertNotIn("<text", svg)
            starts = [float(x) for x in re.findall(r"translate\(([-\d.]+) ", svg)]
            self.assertGreater(min(starts), 0)


if __name__ == "__main__":
    unittest.main()
