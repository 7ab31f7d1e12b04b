"""Draw a recorded terminal session as an SVG picture: transcript.py LOG OUT.svg --title TEXT.

LOG is what a command printed, as it was; nothing is run here. Long logs keep their first and last
lines, and a line says how many are left out.
"""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

HEAD, TAIL, WIDTH = 14, 26, 108
# Rich's picture loads its typeface from the network; the viewer's own will do.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def shortened(lines: list[str]) -> list[str]:
    """The first and the last lines of a session."""
    if len(lines) <= HEAD + TAIL:
        return lines
    left_out = len(lines) - HEAD - TAIL
    return [*lines[:HEAD], f"... {left_out} lines ...", *lines[-TAIL:]]


def draw(lines: list[str], title: str) -> str:
    """The lines as an SVG picture of a terminal."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=False, highlight=False)
    return console.export_svg(title=title, code_format=FORMAT)


def main() -> None:
    """Read the log, write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("log", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--title", default="reprise")
    parser.add_argument("--without", default="$^", help="leave out lines that begin like this")
    given = parser.parse_args()
    lines = given.log.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    lines = [line for line in lines if not re.match(given.without, line)]
    given.out.write_text(draw(shortened(lines), given.title) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
