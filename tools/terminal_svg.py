"""Draws terminal output as an SVG: text on stdin, picture on stdout.

    topicmill demo 2>&1 | python tools/terminal_svg.py "topicmill demo" > docs/demo.svg

The argument is the command shown at the prompt. Terminal colours (SGR 1, 2, 31 to 36) are kept. Each word is drawn at
the position and width of its terminal cells, so columns stay aligned in any font.
"""

import html
import re
import sys

CHAR_WIDTH, LINE_HEIGHT, MARGIN = 8.4, 19, 18
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#56d4dd"}
SGR = re.compile(r"\x1b\[([0-9;]*)m")


def draw(lines, columns):
    """Returns the SVG of lines of text."""
    width, height = round(columns * CHAR_WIDTH + 2 * MARGIN), len(lines) * LINE_HEIGHT + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" '
        'font-size="14" fill="#e6edf3">',
    ]
    for number, line in enumerate(lines):
        y, column, style = MARGIN + (number + 0.75) * LINE_HEIGHT, 0, ""
        for part, text in enumerate(SGR.split(line)):
            if part % 2:  # the numbers of an escape sequence
                codes = text.split(";")
                style = "".join(f' fill="{COLOURS[code]}"' for code in codes if code in COLOURS)
                style += ' opacity="0.6"' * ("2" in codes) + ' font-weight="bold"' * ("1" in codes)
                continue
            for word in re.finditer(r"\S+", text):
                x, length = MARGIN + (column + word.start()) * CHAR_WIDTH, len(word[0]) * CHAR_WIDTH
                out.append(
                    f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"'
                    f"{style}>{html.escape(word[0])}</text>"
                )
            column += len(text)
    return "\n".join([*out, "</g>", "</svg>", ""])


if __name__ == "__main__":
    lines = [f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m" for command in sys.argv[1:]] + sys.stdin.read().splitlines()
    sys.stdout.write(draw(lines, max(80, *(len(SGR.sub("", line)) for line in lines))))
