"""Random sequences of a classifier's verbs agree with a plain dictionary as its model."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pictures import NAMES, stripes

from hashprompt import ContinualClassifier, UserError

ASKED = np.concatenate([stripes(c, 1, np.random.default_rng(9)) for c in range(len(NAMES))])
CHOICE = st.integers(0, 99)


class State(NamedTuple):
    """What a version should be."""

    parent: int | None
    classes: dict[int, str]  # of each picture, by its number
    answers: dict[str, list[float]]  # probabilities of the asked pictures, by class


class ClassifierModel(RuleBasedStateMachine):
    """`versions` is the model; `classifier` is what it is compared with."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.classifier = ContinualClassifier(Path(self.folder.name) / "0", backbone="nano")
        self.pictures: list[np.ndarray] = []
        self.versions: dict[int, State] = {}
        self.current = 0
        self.parts: dict[str, str] = {}  # of each photo, by its digest

    def teardown(self) -> None:
        self.folder.cleanup()

    @property
    def classes(self) -> dict[int, str]:
        return self.versions[self.current].classes if self.current else {}

    @property
    def names(self) -> list[str]:
        return sorted(set(self.classes.values()))

    def name(self, choice: int) -> str:
        return self.names[choice % len(self.names)]

    def free_name(self) -> str:
        return next(n for n in (*NAMES, f"tree {max(self.versions)}") if n not in self.names)

    def answers(self) -> dict[str, list[float]]:
        columns = self.classifier.predict_proba(ASKED).T.tolist()
        return dict(zip(map(str, self.classifier.classes_), columns, strict=True))

    def committed(self, version: int, classes: dict[int, str]) -> None:
        """A verb has returned this version, whose pictures have these classes."""
        assert version == max(self.versions, default=0) + 1
        self.versions[version] = State(self.current or None, classes, self.answers())
        self.current = version

    # Learning. -----------------------------------------------------------------------------

    @initialize()
    def first(self) -> None:
        self.teach([name for name in NAMES[:3] for _ in range(3)])

    @rule(choices=st.lists(st.tuples(CHOICE, st.integers(1, 3)), min_size=1, max_size=2))
    def learn(self, choices: list[tuple[int, int]]) -> None:
        """New pictures of new and known classes, and two that were learned before."""
        known = dict(list(self.classes.items())[:2])
        self.teach([NAMES[c % len(NAMES)] for c, each in choices for _ in range(each)], known)

    def teach(self, names: list[str], again: dict[int, str] | None = None) -> None:
        rng = np.random.default_rng(len(self.pictures))
        new = dict(enumerate(names, start=len(self.pictures)))
        self.pictures += [stripes(NAMES.index(name), 1, rng)[0] for name in names]
        given = {**(again or {}), **new}
        images = np.stack([self.pictures[number] for number in given])
        labels = list(given.values())
        done = self.classifier.learn(images, labels, effort="instant", report=False, quiet=True)
        self.committed(done.version, {**self.classes, **new})

    # Editing. ------------------------------------------------------------------------------

    @rule(which=CHOICE)
    def rename(self, which: int) -> None:
        old, before = self.name(which), self.answers()
        new = self.free_name()
        done = self.classifier.rename(old, new)
        self.committed(done.version, _replaced(self.classes, (old,), new))
        before[new] = before.pop(old)
        assert self.answers() == before

    @precondition(lambda self: len(self.names) > 2)
    @rule(which=CHOICE, kept=st.booleans())
    def merge(self, which: int, kept: bool) -> None:
        pair = self.name(which), self.name(which + 1)
        into = pair[1] if kept else self.free_name()
        done = self.classifier.merge(pair, into, quiet=True)
        self.committed(done.version, _replaced(self.classes, pair, into))

    @precondition(lambda self: len(self.names) > 1)
    @rule(which=CHOICE)
    def forget(self, which: int) -> None:
        name = self.name(which)
        done = self.classifier.forget(name, quiet=True)
        self.committed(done.version, {k: v for k, v in self.classes.items() if v != name})

    @rule(which=CHOICE)
    def refuse(self, which: int) -> None:
        name = self.name(which)
        refused = {
            r"called `.*` already": lambda: self.classifier.rename(name, name),
            "two classes at least": lambda: self.classifier.merge([name], "oak"),
            "Unknown class `no tree`": lambda: self.classifier.forget("no tree"),
            "no version 99999": lambda: self.classifier.undo(to=99_999),
        }
        if self.names == [name]:
            refused["all that is known"] = lambda: self.classifier.forget(name)
        for said, edit in refused.items():
            with pytest.raises(UserError, match=said):
                edit()

    # Versions. -----------------------------------------------------------------------------

    @rule()
    def undo(self) -> None:
        parent = self.versions[self.current].parent
        if parent in self.versions:
            self.current = self.classifier.undo()
            assert self.current == parent
        else:
            with pytest.raises(UserError, match=r"is its first|is not in"):
                self.classifier.undo()

    @rule(which=CHOICE)
    def redo(self, which: int) -> None:
        self.current = sorted(self.versions)[which % len(self.versions)]
        assert self.classifier.undo(to=self.current) == self.current

    @rule()
    def reopen(self) -> None:
        self.classifier = ContinualClassifier.load(self.classifier.store.folder)

    @rule()
    def export(self) -> None:
        """From here on, with the copy: it has the current version only."""
        old = self.classifier.store.folder
        self.classifier.export(old.with_name(f"{old.name}+"))
        self.classifier = ContinualClassifier.load(old.with_name(f"{old.name}+"))
        self.versions = {self.current: self.versions[self.current]}

    @invariant()
    def agree(self) -> None:
        store = self.classifier.store
        assert store.numbers() == sorted(self.versions)
        assert store.current() == self.current
        parents = {row["version"]: row["parent"] for row in self.classifier.history()}
        assert parents == {number: state.parent for number, state in self.versions.items()}
        version, counts = store.version(), Counter(self.classes.values())
        assert sorted(self.classifier.classes_) == sorted(version.info["classes"]) == self.names
        assert {name: sum(n) for name, n in version.info["images"].items()} == counts
        assert version.info["accuracy"].keys() == counts.keys()
        records = store.photos(version)
        assert Counter(version.info["classes"][row.label] for row in records.values()) == counts
        parts = {digest: row.part for digest, row in records.items()}
        assert self.parts | parts == parts | self.parts, "a held-out photo was learned"
        self.parts |= parts
        assert self.answers() == self.versions[self.current].answers


def _replaced(classes: dict[int, str], old: tuple[str, ...], new: str) -> dict[int, str]:
    return {number: new if name in old else name for number, name in classes.items()}


SHORT = settings(
    max_examples=10,
    stateful_step_count=10,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_a_classifier_agrees_with_its_model() -> None:
    run_state_machine_as_test(ClassifierModel, settings=SHORT)


@pytest.mark.slow
def test_a_classifier_agrees_with_its_model_for_long() -> None:
    long = settings(SHORT, max_examples=200, stateful_step_count=40, derandomize=False)
    run_state_machine_as_test(ClassifierModel, settings=long)
