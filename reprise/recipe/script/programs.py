"""Programs that only work on text, as far as scripts use them: what they print."""

from __future__ import annotations

import posixpath
import re
from typing import Protocol

from reprise.recipe.bash.unknown import has_unknown

__all__ = ["printed"]


class _Shell(Protocol):
    def place(self, name: str) -> str: ...

    def number(self, text: str) -> int | str: ...

    def file_text(self, name: str, row: int) -> str: ...

    def save(self, name: str, text: str, append: bool) -> None: ...

    row: int


def printed(name: str, words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    """What the program prints; None where that is not known without running it."""
    takers = {
        "basename": _basename, "dirname": _dirname, "seq": _seq, "expr": _expr, "tr": _tr,
        "cut": _cut, "wc": _wc, "cat": _cat, "tee": _tee, "realpath": _realpath,
        "readlink": _realpath, "head": _head, "tail": _tail, "rev": _rev,
    }  # fmt: skip
    taker = takers.get(name)
    return taker(words, stdin, shell) if taker is not None else None


def _basename(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    words = words[1:] if words[:1] == ["--"] else words
    if not words or words[0].startswith("-"):
        return None
    name = words[0].rstrip("/").rpartition("/")[2] or "/"
    if has_unknown(name) and "/" not in words[0]:
        return None
    suffix = words[1] if len(words) > 1 else ""
    return (name.removesuffix(suffix) if suffix and name != suffix else name) + "\n"


def _dirname(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    words = words[1:] if words[:1] == ["--"] else words
    if len(words) != 1:
        return None
    text = words[0].rstrip("/")
    if has_unknown(text.rpartition("/")[2]) and "/" not in text:
        return None
    return (posixpath.dirname(text) or ("/" if words[0].startswith("/") else ".")) + "\n"


def _realpath(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    paths = [word for word in words if not word.startswith("-")]
    return shell.place(paths[0]) + "\n" if len(paths) == 1 else None


def _seq(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    glue = "\n"
    if words[:1] == ["-s"] and len(words) > 1:
        glue, words = words[1], words[2:]
    if not 1 <= len(words) <= 3 or not all(re.fullmatch(r"-?\d+", word) for word in words):
        return None
    numbers = [int(word) for word in words]
    first, step, last = {
        1: (1, 1, numbers[-1]),
        2: (numbers[0], 1, numbers[-1]),
        3: (numbers[0], numbers[len(numbers) // 2], numbers[-1]),
    }[len(numbers)]
    if not step:
        return None
    made = range(first, last + (1 if step > 0 else -1), step)
    if len(made) > 20_000:
        return None
    return glue.join(map(str, made)) + "\n" if made else ""


def _expr(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    if has_unknown(" ".join(words)) or not all(
        re.fullmatch(r"-?\d+|[-+*/%()]", word) for word in words
    ):
        return None
    return f"{shell.number(' '.join(words))}\n"


def _set(text: str) -> str | None:
    """The characters of a set of tr."""
    text = text.replace("[:upper:]", "A-Z").replace("[:lower:]", "a-z").replace("[:digit:]", "0-9")
    text = text.replace("[:space:]", " \t\n\r\v\f")
    if "[:" in text:
        return None
    text = re.sub(
        r"\\(n|t|r|\\|0)",
        lambda m: {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "0": "\0"}[m[1]],
        text,
    )
    return re.sub(
        r"(.)-(.)",
        lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))),
        text,
        flags=re.S,
    )


def _tr(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    if stdin is None or has_unknown(stdin):
        return None
    options = [word for word in words if re.fullmatch(r"-[cds]+", word)]
    sets = [_set(word) for word in words if word not in options]
    if options and options[0] == "-d" and len(sets) == 1 and sets[0] is not None:
        return "".join(char for char in stdin if char not in sets[0])
    if options and options[0] == "-cd" and len(sets) == 1 and sets[0] is not None:
        return "".join(char for char in stdin if char in sets[0])
    if options or len(sets) != 2 or sets[0] is None or not sets[1]:
        return None
    second = sets[1] + sets[1][-1] * max(len(sets[0]) - len(sets[1]), 0)
    return stdin.translate({ord(a): b for a, b in zip(sets[0], second, strict=False)})


def _cut(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    if stdin is None or has_unknown(stdin):
        return None
    joined = " ".join(words)
    match = re.fullmatch(r"-d ?(.) -f ?(\d+)(-?)(\d*)|-f ?(\d+)(-?)(\d*) -d ?(.)", joined)
    if match is None:
        return None
    first = match.group(1) is not None
    glue = match.group(1) if first else match.group(8)
    low, dash, high = match.groups()[1:4] if first else match.groups()[4:7]
    rows = []
    for row in stdin.splitlines():
        fields = row.split(glue)
        if len(fields) == 1:
            rows.append(row)
            continue
        end = int(high) if high else (len(fields) if dash else int(low))
        rows.append(glue.join(fields[int(low) - 1 : end]))
    return "".join(row + "\n" for row in rows)


def _wc(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    if stdin is None or has_unknown(stdin) or len(words) != 1:
        return None
    counts = {"-l": stdin.count("\n"), "-w": len(stdin.split()), "-c": len(stdin.encode()),
              "-m": len(stdin)}  # fmt: skip
    return f"{counts[words[0]]}\n" if words[0] in counts else None


def _cat(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    names = [word for word in words if word != "-" and not word.startswith("-")]
    if not names:
        return stdin
    return "".join(shell.file_text(name, shell.row) for name in names)


def _head(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    count = _lines(words)
    if stdin is None or has_unknown(stdin) or count is None:
        return None
    return "".join(stdin.splitlines(keepends=True)[:count])


def _tail(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    count = _lines(words)
    if stdin is None or has_unknown(stdin) or not count:
        return None
    return "".join(stdin.splitlines(keepends=True)[-count:])


def _lines(words: list[str]) -> int | None:
    match = re.fullmatch(r"-n ?(\d+)|-(\d+)|()", " ".join(words))
    if match is None:
        return None
    return int(match.group(1) or match.group(2) or 10)


def _rev(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    if stdin is None or has_unknown(stdin) or words:
        return None
    return "".join(row[::-1] + "\n" for row in stdin.splitlines())


def _tee(words: list[str], stdin: str | None, shell: _Shell) -> str | None:
    for name in words:
        if not name.startswith("-") and stdin is not None:
            shell.save(name, stdin, "-a" in words)
    return stdin
