"""Names that try to be more than names."""

import unicodedata

NAMES = {
    "a colour": "\x1b[31mred\x1b[0m",
    "a link": "\x1b]8;;http:evil\x07click\x1b]8;;\x07",
    "a title of the window": "\x9d0;owned\x9c",
    "a C1 control": "\x9b2J",
    "right to left": "\u202egpj.exe",
    "an isolate": "a\u2066b\u2069",
    "a mark of direction": "a\u200fb",
    "a line": "a\nError: all is lost",
    "a return": "a\rb",
    "a Unicode line": "a\u2028b",
    "half a character": "a\udce4b",
    "a hidden joiner": "a\u200db",
    "markup": "[red]x[bold]",
    "a closing tag": "[bold]",
    "an emoji code": ":smile:",
    "a formula of TeX": "$x$",
    "broken TeX": "$\\frac{$",
    "a formula of a spreadsheet": "=1+1",
    "HTML": "<img src=x onerror=alert(1)>",
    "Markdown": "[a](b)|`c`*d*",
}
SEEN = ("[red]x[bold]", ":smile:", "$x$", "=1+1")  # must come out as they are


def assert_harmless(text: str) -> None:
    """Nothing in it but what can be seen, and ends of lines."""
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    found = {ascii(c) for c in text if c != "\n" and unicodedata.category(c) in hidden}
    assert not found, found
    assert "\nError: all is lost" not in f"\n{text}"
