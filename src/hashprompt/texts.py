"""Texts that did not come from us (names of classes, files, sources), as they may be shown.

A name can hold what a terminal obeys instead of showing: colours, links, another title of the
window, an order to write from right to left. Spreadsheets and Markdown have orders of their own.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, formats, half characters, ends of lines
# Persian words and emoji are spelt with these two, which move nothing. Beside a Latin letter they
# do nothing but make two names look the same.
JOINERS = "\u200c\u200d"
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # spreadsheets read the wide ones too


def visible(text: object, lines: bool = False) -> str:
    """A text in which nothing is hidden: `\\x1b` for ESC, `\\u202e` for right-to-left.

    Args:
        lines: let it have several lines, for texts of ours; else an end of line is shown as `\\n`.
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
        beside = text[place - 1], text[place + 1]
        if not any(other.isascii() or other in JOINERS for other in beside):
            return character
    return character.encode("unicode_escape").decode()


def json_text(value: Any, encoding: str | None = None) -> str:
    """JSON that can be printed: what `visible` would change is written as `\\uXXXX`.

    Args:
        encoding: letters that it lacks are written in the same way; by default it has all.
    """
    text = json.dumps(value, indent=1, ensure_ascii=False)
    if encoding:
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return json.dumps(value, indent=1)
    # Outside of strings there is nothing but ASCII and ends of lines, inside none of those.
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def csv_text(text: str) -> str:
    """A cell that a spreadsheet takes for text: `'` before what would begin a formula."""
    text = visible(text)
    return f"'{text}" if text.startswith(FORMULA) else text


def markdown_text(text: str) -> str:
    """A cell of a table in Markdown, that holds neither HTML nor links nor formulas."""
    text = re.sub(r"[\\`*\[\]|~$]", r"\\\g<0>", visible(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def counted(number: int, one: str, many: str) -> str:
    """`1 class`, `2 classes`."""
    return f"{number:,} {one if number == 1 else many}"


def in_natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted, with numbers by value: `task2` before `task10`."""

    def key(name: str) -> list[tuple[int, int, str]]:
        pieces = re.split(r"([0-9]+)", name)
        return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in pieces if p]

    return tuple(sorted(names, key=lambda name: (key(name), name)))
