"""Texts for users are in plain English and in the terms of the field."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "hashprompt"
REFUSED = {  # patterns, and what to write instead
    r"\ba learn\b|\blearns? (that|is|was|has|had)\b|\bof learns\b": "a session, training",
    r"\blooks? (first|at once)\b|\b(first|the) look\b": "the frozen-feature fit",
    r"\blikeness": "similarity, clusters",
    r"\bplain (features?|pass(es)?|Gaussians?)\b": "frozen features, frozen forward pass",
    r"(?<![Ss]low )\b[Ll]earners?\b(?!\/)": "model",
    r"\bnumbers stored\b": "stored values",
    r"\bof (its|their|our|one's) own\b": "separate",
    r"\bbeside\b": "next to, besides",
    r"\banew\b": "again, re-",
    r"\bdrawings\b": "synthetic glyphs",
    r"\btold of\b|\bis told\b|\btells\b": "reports, shows",
    r"\bWhat it reaches\b|\bWhat strangers\b": "Results, Untrusted input",
    r"\bSay (the|what|which)\b": "Show …; in an error: what was expected",
    r"\b[Gg]o(es)? on with\b|\bgoing on\b": "resume, continue",
    r"\bAnswer alone\b": "read-only",
    r"\bReminds? of\b": "closest classes",
    r"\bvoters\b": "ensemble",
    r"\beven use\b": "load balance",
    r"\b(all|by) chance\b": "random seed",
    r"\bcomes? into the world\b": "is added",
    r"\bputs? right\b|\bnames rightly\b": "fixes, classifies correctly",
    r"\banother game\b": "listed separately",
}
ANY = re.compile("|".join(REFUSED))


def found(text: str) -> list[str]:
    """Refused expressions in a text."""
    return [match[0] for match in ANY.finditer(text)]


def texts() -> Iterator[tuple[str, str]]:
    """Files, and their strings: messages, help, docstrings, pages, documents."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path.relative_to(SOURCES).as_posix(), node.value
    for path in sorted(p for kind in ("*.js", "*.html", "*.yaml") for p in SOURCES.rglob(kind)):
        yield path.relative_to(SOURCES).as_posix(), path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        without_code = re.sub(r"```.*?```|`[^`\n]+`", "", path.read_text(), flags=re.DOTALL)
        yield path.relative_to(ROOT).as_posix(), without_code


def test_no_text_has_a_refused_expression() -> None:
    refused = {f"{file}: {expression}" for file, text in texts() for expression in found(text)}
    assert not refused


@pytest.mark.parametrize(
    "text",
    [
        "A learn looks first and answers at once.",
        "Groups of likeness, by plain features of their own.",
        "Say the version.",
        "Go on with an interrupted run.",
        "All the numbers stored beside the learner are made anew.",
    ],
)
def test_private_english_is_refused(text: str) -> None:
    assert found(text)
