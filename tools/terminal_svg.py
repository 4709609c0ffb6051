"""Draw what a terminal showed as an SVG: text on stdin, picture on stdout.

    topicmill demo 2>&1 | python tools/terminal_svg.py "topicmill demo" > docs/demo.svg

The first argument is the command shown at the prompt. Colours of the terminal (SGR 1, 2, 31 to 36) are
kept; anything else is drawn in the colour of the text. Each word is drawn at its own cells of the terminal and
exactly as wide as they are, so columns stay under each other in any font. Standard library only.
"""

import html
import re
import sys

CHAR_WIDTH, LINE_HEIGHT, MARGIN = 8.4, 19, 18
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#56d4dd"}
SGR = re.compile(r"\x1b\[([0-9;]*)m")


def spans(line):
    """Yield (text, style) pieces of a line; style is an SVG attribute string."""
    style, at = "", 0
    for match in SGR.finditer(line):
        if match.start() > at:
            yield line[at : match.start()], style
        codes = match[1].split(";")
        colour = next((COLOURS[code] for code in codes if code in COLOURS), None)
        style = f' fill="{colour}"' if colour else ""
        if "2" in codes:
            style += ' opacity="0.6"'
        if "1" in codes:
            style += ' font-weight="bold"'
        at = match.end()
    if at < len(line):
        yield line[at:], style


def draw(lines, columns):
    """Return the SVG of lines of text."""
    width = round(columns * CHAR_WIDTH + 2 * MARGIN)
    height = len(lines) * LINE_HEIGHT + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" '
        'font-size="14" fill="#e6edf3">',
    ]
    for number, line in enumerate(lines):
        y = MARGIN + (number + 0.75) * LINE_HEIGHT
        column = 0
        for text, style in spans(line):
            for word in re.finditer(r"\S+", text):
                x, length = MARGIN + (column + word.start()) * CHAR_WIDTH, len(word[0]) * CHAR_WIDTH
                out.append(
                    f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"'
                    f"{style}>{html.escape(word[0])}</text>"
                )
            column += len(text)
    return "\n".join([*out, "</g>", "</svg>", ""])


def main():
    """Read the terminal's text, write the picture."""
    command = sys.argv[1] if len(sys.argv) > 1 else None
    lines = [line.rstrip("\n") for line in sys.stdin]
    if command:
        lines = [f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m", *lines]
    columns = max(80, max(len(SGR.sub("", line)) for line in lines))
    sys.stdout.write(draw(lines, columns))


if __name__ == "__main__":
    main()
