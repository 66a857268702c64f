"""`hashprompt methods check FILE.py`: what it says of a method, and what it finds."""

import re
from pathlib import Path
from typing import Any

import pytest

from hashprompt.methods.registry import METHODS

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"
# Mistakes in the method of that page, each with the contract that finds it.
MISTAKES = {
    "a mean over the batch": (
        "-torch.cdist(self.features(images), self.means)",
        "-torch.cdist(self.features(images) - self.features(images).mean(0), self.means)",
        "logits do not depend on the batch",
    ),
    "state that hides between steps": (
        'return {"ce": F.cross_entropy(logits, batch.labels)}',
        'self.__dict__["n"] = self.__dict__.get("n", 0) + 1\n'
        '        return {"ce": F.cross_entropy(logits, batch.labels) * self.__dict__["n"]}',
        "an interrupted run resumes to the same bits",
    ),
    "old means that move": (
        'grow_buffer(self, "means", torch.stack(means))',
        'self.means.mul_(0.99); grow_buffer(self, "means", torch.stack(means))',
        "state of old tasks stays bit identical",
    ),
}


@pytest.fixture
def own(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A file with the documented method under a name of its own; forgotten afterwards."""
    before = set(METHODS)
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None

    def write(name: str, old: str = "", new: str = "") -> Path:
        file = tmp_path / f"{name}.py"
        assert old in block[1]
        text = block[1].replace('"first-prompt"', f'"{name}"')
        file.write_text(text.replace(old, new) if old else text, encoding="utf-8")
        return file

    yield write
    for name in set(METHODS) - before:
        del METHODS[name]


def test_a_sound_method_keeps_every_promise(cli: Any, own: Any) -> None:
    outcome = cli("methods", "check", own("sound"))
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert len(lines) == 9
    assert all(line.startswith("holds  sound, class: ") for line in lines)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_and_named(mistake: str, cli: Any, own: Any) -> None:
    old, new, contract = MISTAKES[mistake]
    outcome = cli("methods", "check", own(f"bad{list(MISTAKES).index(mistake)}", old, new))
    assert outcome.code == 1
    broken = [line for line in outcome.out.splitlines() if line.startswith("BROKEN")]
    assert any(line.endswith(contract) for line in broken), outcome.out


def test_what_cannot_be_checked_is_said(cli: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("")
    for arguments, said in (
        ((), "No method given"),
        ((tmp_path / "none.py",), "cannot be imported"),
        ((empty,), "registers no method"),
        (("hsah",), "Did you mean `hash`"),
    ):
        outcome = cli("methods", "check", *arguments)
        assert outcome.code == 1
        assert said in outcome.said
