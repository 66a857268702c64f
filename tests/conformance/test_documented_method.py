"""The method of docs/add-a-method.md, taken from the page as it stands, meets every contract."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_contracts import test_contract  # noqa: F401  the contracts themselves

from hashprompt.checks.example import Example
from hashprompt.methods.registry import METHODS, OWN_METHODS, known_methods

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """Instead of all registered methods this one alone, registered for these tests alone."""
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    file = tmp_path_factory.mktemp("own") / "first_prompt.py"
    file.write_text(block[1], encoding="utf-8")
    before = set(METHODS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(OWN_METHODS, f"{file}{os.pathsep}")
        (name,) = set(known_methods()) - before
    yield Example(name)
    del METHODS[name]
