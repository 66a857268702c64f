"""Rename, merge and forget: what is left is what it would be without, and undo brings it back."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import NAMES, QUICK, write_photos
from running import PowerCut

from hashprompt import ContinualClassifier, UserError
from hashprompt.engine.optimization import Optimization
from hashprompt.photos.store.edits import forget_edit, merge_edit, rename_edit

Make = Callable[..., ContinualClassifier]


@pytest.fixture
def trees(taught: ContinualClassifier, tmp_path: Path) -> ContinualClassifier:
    """A copy of a classifier of two learns, to be changed; `ash` is in both of them."""
    shutil.copytree(str(taught.folder), tmp_path / "copy")
    return ContinualClassifier(tmp_path / "copy")


def state(classifier: ContinualClassifier) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    store = classifier.store
    version = store.version()
    return version.info, store.tensors(version)


def answers(classifier: ContinualClassifier, photos: Path) -> list[tuple[Any, ...]]:
    found = classifier.predict(photos)
    return [(a.label, a.probabilities, a.unknown, a.closest) for a in found]


# Forgetting. ---------------------------------------------------------------------------------


def test_forgotten_is_as_if_it_was_never_learned(make: Make, tmp_path: Path) -> None:
    """A frozen-feature fit consists of statistics only."""
    every = write_photos(tmp_path / "all", NAMES[:3], each=55)
    shutil.copytree(every, tmp_path / "some" / "all", ignore=shutil.ignore_patterns("birch"))
    found, expected = make("with", shrinkage=0.5), make("without", shrinkage=0.5)
    for classifier, photos in ((found, every), (expected, tmp_path / "some" / "all")):
        classifier.learn(photos, effort="instant", report=False, quiet=True)
    assert found.store.version().info["temperature"] != 5.0
    edited = found.forget("birch", quiet=True)
    asked = write_photos(tmp_path / "asked", NAMES[:4], each=3, seed=8)
    assert answers(found, asked) == answers(expected, asked)
    ours, theirs = state(found)[0], state(expected)[0]
    for name in ("classes", "batches", "images", "temperature", "distances"):
        assert ours[name] == theirs[name], name
    assert ours["accuracy"] == theirs["accuracy"]
    assert [p[:2] for p in found.store.photos(found.store.version()).values()] == [
        p[:2] for p in expected.store.photos(expected.store.version()).values()
    ]
    assert "Nothing of it remains" in edited.text()
    assert "forgot birch; 2 classes in total" in edited.text()


def test_nothing_of_a_forgotten_class_is_in_the_version(
    trees: ContinualClassifier, spring: Path
) -> None:
    old = state(trees)[1]
    edited = trees.forget("ash", quiet=True)
    assert "What remains: the shared prompt and the head's rows" in edited.text()
    info, tensors = state(trees)
    assert info["classes"] == ["birch", "cedar", "date", "elm"]
    assert info["batches"] == [[0, 1], [2, 3]]
    assert tensors["cells.label"].tolist() == [0, 1, 2, 3]
    kept = old["cells.label"] != 0
    for name in ("gaussians.means", "gaussians.spread", "gaussians.rest"):
        assert torch.equal(tensors[name], old[name][kept])
    assert torch.equal(tensors["head.weight"], old["head.weight"][1:])
    assert torch.equal(tensors["average"], old["average"])  # what remains
    store = trees.store
    folder = store.version().folder
    assert all("ash" not in p.read_text() for p in [folder / "photos.json"])
    assert "ash" not in json.dumps({**info, "edit": "", "batch_names": []})
    assert len(store.photos(store.version())) == 40
    assert sum(tested for _, tested in info["accuracy"].values()) == 8
    assert set(trees.predict(spring / "ash" / "0-0.png").probabilities) == set(info["classes"])
    assert trees.history()[-1]["edit"] == "forgot ash"


def test_a_learn_of_which_nothing_is_left_is_gone(trees: ContinualClassifier, spring: Path) -> None:
    for name in ("elm", "date", "ash"):
        trees.forget(name, quiet=True)
    info, tensors = state(trees)
    assert info["batch_names"] == ["spring"]
    assert tensors["cells.task"].tolist() == [0, 0]
    assert trees.predict(spring / "birch" / "0-0.png").label == "birch"


def test_what_held_out_photos_were_taken_for_is_asked_anew(trees: ContinualClassifier) -> None:
    store = trees.store
    rows = store.photos(store.version())
    trees.forget("birch", quiet=True)
    edited = store.photos(store.version())
    held_out = [row for row in edited.values() if row[1] == "test"]
    assert len(held_out) == 10
    assert all(row[3] is not None for row in held_out)
    assert len(rows) - len(edited) == 10


def test_held_out_photos_that_are_gone_leave_the_calibration(
    make: Make, spring: Path, tmp_path: Path
) -> None:
    photos = shutil.copytree(spring, tmp_path / "photos")
    classifier = make()
    classifier.learn(photos, effort="instant", report=False, quiet=True)
    before = state(classifier)[0]
    shutil.rmtree(photos)
    classifier.forget("ash", quiet=True)
    info = state(classifier)[0]
    assert (info["temperature"], info["distances"]) == (before["temperature"], before["distances"])
    assert any("are missing" in note for note in info["notes"])
    assert info["accuracy"] == {"birch": [0, 0], "cedar": [0, 0]}


def kill_retraining(classifier: ContinualClassifier, photos: Path) -> None:
    """Begin to forget `birch` and learn photos from nothing; the power fails while it trains."""
    step = Optimization.step

    def cut(*arguments: Any) -> Any:
        if "birch" not in classifier.classes_:
            raise PowerCut
        return step(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Optimization, "step", cut)
        with pytest.raises(PowerCut):
            classifier.forget("birch", quiet=True, retrain=photos)


@pytest.mark.parametrize("killed", [False, True])
def test_retrained_it_is_a_classifier_that_never_saw_the_class(
    killed: bool, trees: ContinualClassifier, make: Make, spring: Path, tmp_path: Path
) -> None:
    """Prompts, heads and statistics to the bit; undo brings back what there was."""
    had = state(trees)[1]
    trees = ContinualClassifier(str(trees.folder), **QUICK)
    shutil.copytree(spring, tmp_path / "have" / "all")
    write_photos(tmp_path / "have" / "more", NAMES[3:5])
    for folder in (tmp_path / "have" / "more").iterdir():
        folder.rename(tmp_path / "have" / "all" / folder.name)
    have = tmp_path / "have" / "all"
    expected = make("never")
    without = tmp_path / "some" / "all"
    shutil.copytree(have, without, ignore=shutil.ignore_patterns("birch"))
    expected.learn(without, report=False, quiet=True)
    if killed:
        kill_retraining(trees, have)
        text = trees.learn(resume=True, report=False, quiet=True).text()
    else:
        text = trees.forget("birch", quiet=True, retrain=have).text()
        assert "Nothing of birch remains" in text
    assert "forgot birch, learned all from nothing; 4 classes in total" in text
    (info, found), (theirs, never) = state(trees), state(expected)
    assert info["classes"] == theirs["classes"] == ["ash", "cedar", "date", "elm"]
    assert found.keys() == never.keys()
    assert [name for name in never if not torch.equal(found[name], never[name])] == []
    assert info["accuracy"] == theirs["accuracy"]
    assert not [note for note in info["notes"] if "birch" in note]
    digests = trees.store.photos(trees.store.version()).keys()
    assert digests == expected.store.photos(expected.store.version()).keys()
    trees.undo()
    assert all(torch.equal(tensor, had[name]) for name, tensor in state(trees)[1].items())


def test_an_unfinished_retraining_that_is_dropped_leaves_what_was_known(
    trees: ContinualClassifier, tmp_path: Path
) -> None:
    have = write_photos(tmp_path / "have", NAMES[:5])
    trees = ContinualClassifier(str(trees.folder), **QUICK)
    kill_retraining(trees, have)
    figs = write_photos(tmp_path / "figs", ("fig",))
    trees.learn(figs, effort="instant", discard=True, report=False, quiet=True)
    assert sorted(trees.classes_) == sorted(NAMES)


def test_photos_to_retrain_with_must_have_all_other_classes(
    trees: ContinualClassifier, spring: Path, tmp_path: Path
) -> None:
    before = trees.history()
    with pytest.raises(UserError, match=r"spring has no training photos of 2 other classes \(date"):
        trees.forget("birch", quiet=True, retrain=spring)
    with pytest.raises(UserError, match=r"dtae"):
        trees.forget("dtae", quiet=True, retrain=spring)
    alike = tmp_path / "alike"
    shutil.copytree(spring, alike)
    (alike / "birch").rename(alike / "Birch")  # may be the class that shall be forgotten
    with pytest.raises(UserError, match="Birch"):
        trees.forget("birch", quiet=True, retrain=alike)
    assert trees.history() == before


def test_photos_to_retrain_with_may_have_other_names(
    trees: ContinualClassifier, tmp_path: Path
) -> None:
    trees = ContinualClassifier(str(trees.folder), **QUICK)
    have = write_photos(tmp_path / "have", NAMES[:5])
    (have / "ash").rename(have / "Ash")
    with pytest.raises(UserError, match="retrain"):
        trees.forget("birch", rename={"Ash": "ash"})
    trees.forget("birch", quiet=True, retrain=have, rename={"Ash": "ash"})
    assert trees.classes_.tolist() == ["ash", "cedar", "date", "elm"]


# Merging. ------------------------------------------------------------------------------------


def test_merged_classes_keep_their_gaussians(make: Make, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", NAMES[:2], each=20)
    shutil.move(write_photos(tmp_path / "few", NAMES[2:3], each=10) / "cedar", photos / "cedar")
    classifier = make(statistics="covariance")
    classifier.learn(photos, effort="instant", report=False, quiet=True)
    _, old = state(classifier)
    unknown = [answer.unknown for answer in classifier.predict(photos)]
    classifier.merge(["cedar", "ash"], into="tree", quiet=True)
    info, tensors = state(classifier)
    assert info["classes"] == ["birch", "tree"]
    assert info["images"] == {"birch": [16, 4], "tree": [24, 6]}
    assert tensors["cells.label"].tolist() == [1, 0, 1]
    for name in ("gaussians.means", "gaussians.spread"):
        assert len(tensors[name]) == 3
        assert torch.equal(tensors[name], old[name])
    asked = classifier.predict(photos)
    labels = [{"ash": "tree", "cedar": "tree"}.get(n, n) for n in _folders(asked)]
    assert np.mean([a.label == label for a, label in zip(asked, labels, strict=True)]) > 0.9
    # No photo is further from all that is known than before, and a class is named once.
    assert np.mean(unknown) == pytest.approx(
        np.mean([answer.unknown for answer in asked]), abs=0.05
    )
    for answer in asked:
        assert len({near["class"] for near in answer.closest}) == len(answer.closest) == 2


def test_classes_of_different_learns_stay_beside_each_other(trees: ContinualClassifier) -> None:
    old = state(trees)[1]
    trees.merge(["birch", "elm"], into="elm", quiet=True)
    info, tensors = state(trees)
    assert info["classes"] == ["ash", "elm", "cedar", "date"]
    assert info["batches"] == [[0, 1, 2], [0, 1, 3]]
    assert torch.equal(tensors["gaussians.means"], old["gaussians.means"])
    assert sorted(tensors["cells.label"].tolist()) == [0, 0, 1, 1, 2, 3]
    assert info["accuracy"]["elm"][1] == 4
    assert "merged birch and elm into elm" in trees.history()[-1]["source"]


def _folders(asked: list[Any]) -> list[str]:
    return [Path(answer.name).parent.name for answer in asked]


# Renaming, and what is refused. ---------------------------------------------------------------


def test_numbers_that_become_words_are_words(make: Make) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (12, 32, 32, 3), dtype=np.uint8)
    classifier = make()
    labels = [1] * 6 + [2] * 6
    classifier.learn(noise, labels=labels, effort="instant", report=False, quiet=True)
    classifier.rename("2", "3")
    assert classifier.classes_.tolist() == [1, 3]
    classifier.rename("3", "noise")
    assert classifier.classes_.tolist() == ["1", "noise"]


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda: rename_edit(NAMES, "ahs", "oak"), "ash"),
        (lambda: rename_edit(NAMES, "ash", "Birch"), "merge them"),
        (lambda: rename_edit(NAMES, "ash", " "), "empty"),
        (lambda: rename_edit(NAMES, "ash", "a\u202eb"), "cannot be seen"),
        (lambda: rename_edit(NAMES, "ash", "ash"), "already"),
        (lambda: merge_edit(NAMES, ["ash"], "oak"), "two classes"),
        (lambda: merge_edit(NAMES, ["ash", "ash"], "oak"), "two classes"),
        (lambda: merge_edit(NAMES, ["ash", "oak"], "fir"), "oak"),
        (lambda: merge_edit(NAMES, ["ash", "birch"], "cedar"), "`cedar` already"),
        (lambda: forget_edit(NAMES, "oak"), "oak"),
        (lambda: forget_edit(["ash"], "ash"), "all that is known"),
    ],
)
def test_what_cannot_be_meant_is_refused(edit: Callable[[], object], match: str) -> None:
    with pytest.raises(UserError, match=match):
        edit()


def test_only_the_case_of_a_name_may_change() -> None:
    assert rename_edit(NAMES, "ash", "Ash").names[0] == "Ash"
    merged = merge_edit(NAMES, ["date", "birch"], "Birch")
    assert merged.names == ["ash", "cedar", "Birch", "elm", "fig"]
    assert merged.ids == [0, 2, 1, 2, 3, 4]


def test_the_commands_edit(trees: ContinualClassifier, cli: Any) -> None:
    folder = str(trees.folder)
    outcome = cli("rename", folder, "ash", "Esche")
    assert outcome.out.startswith("Version 5: renamed ash to Esche; 5 classes in total.")
    outcome = cli("merge", folder, "birch", "cedar", "--into", "tree", "-q", "--json")
    assert json.loads(outcome.out)["version"] == 6
    outcome = cli("forget", folder, "date", "-q")
    assert "Version 7: forgot date; 3 classes in total." in outcome.out
    assert "Earlier versions, which undo needs, still contain it" in outcome.out
    assert cli("forget", folder, "dtae").code == 1
    missing = cli("forget", folder, "elm", "--retrain", str(Path(folder) / "none"), "-q")
    assert missing.code == 1
    assert "none" in missing.err
    assert "is now version 6 (merged birch and cedar into tree" in cli("undo", folder).out
