"""Untrusted texts (names of classes, files, sources) made safe to show; other texts.

A name can contain control sequences that a terminal obeys instead of showing: colours, links, the
window title, right-to-left order. Spreadsheets and Markdown have control sequences too.
"""

import inspect
import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, formats, half characters, ends of lines
# Persian words and emoji need these two. Next to a Latin letter they only make two different names
# look the same.
JOINERS = "\u200c\u200d"
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # spreadsheets also accept the wide forms


def visible(text: object, lines: bool = False) -> str:
    """A text with escapes in place of hidden characters: `\\x1b` for ESC, `\\u202e`, …

    Args:
        lines: keep line ends, for our own texts; else a line end is shown as `\\n`.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(_shown(text, place, lines) for place in range(len(text)))


def _shown(text: str, place: int, lines: bool) -> str:
    character = text[place]
    if unicodedata.category(character) not in HIDDEN or (lines and character == "\n"):
        return character
    if character in JOINERS and 0 < place < len(text) - 1:
        neighbours = text[place - 1], text[place + 1]
        if not any(other.isascii() or other in JOINERS for other in neighbours):
            return character
    return character.encode("unicode_escape").decode()


def json_text(value: Any, encoding: str | None = None) -> str:
    """JSON that is safe to print: characters that `visible` would change become `\\uXXXX`.

    Args:
        encoding: characters that it lacks become `\\uXXXX` too; None: it has all.
    """
    text = json.dumps(value, indent=1, ensure_ascii=False)
    if encoding:
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return json.dumps(value, indent=1)
    # Outside of strings there are only ASCII characters and line ends, inside no line ends.
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def csv_text(text: str) -> str:
    """A cell that spreadsheets read as text: `'` before what would start a formula."""
    text = visible(text)
    return f"'{text}" if text.startswith(FORMULA) else text


def markdown_text(text: str) -> str:
    """A cell of a Markdown table, without HTML, links and formulas."""
    text = re.sub(r"[\\`*\[\]|~$]", r"\\\g<0>", visible(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def argument_texts(docstring: str | None) -> dict[str, str]:
    """The descriptions below `Args:` in a docstring, by name."""
    entries = inspect.cleandoc(docstring or "").partition("\nArgs:\n")[2]
    found = re.findall(r"^    (\w+): (.+(?:\n {5,}.+)*)", entries, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def counted(number: int, one: str, many: str) -> str:
    """`1 class`, `2 classes`."""
    return f"{number:,} {one if number == 1 else many}"


def in_natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted, with numbers by value: `task2` before `task10`."""

    def key(name: str) -> list[tuple[int, int, str]]:
        pieces = re.split(r"([0-9]+)", name)
        return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in pieces if p]

    return tuple(sorted(names, key=lambda name: (key(name), name)))
