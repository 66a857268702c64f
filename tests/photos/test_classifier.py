"""Teach, ask, undo: what the classifier promises to a person with folders of photos."""

import io
import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import NAMES, stripes, write_photos
from PIL import Image

from hashprompt import ContinualClassifier, UserError
from hashprompt.backbone.weights import load_backbone
from hashprompt.photos import session, training

Make = Callable[..., ContinualClassifier]


def tensors_of(classifier: ContinualClassifier, number: int | None = None) -> dict:
    store = classifier.store
    return store.tensors(store.version(number))


def test_it_learns_folders_and_answers(taught: ContinualClassifier, spring: Path) -> None:
    answer = taught.predict(spring / "birch" / "0-0.png")
    assert answer.label == "birch"
    assert answer.confidence == max(answer.probabilities.values())
    assert sum(answer.probabilities.values()) == pytest.approx(1)
    assert set(answer.probabilities) == set(NAMES[:5])
    assert answer.closest[0]["class"] == "birch"
    assert answer.closest[0]["learned"] == "spring"
    assert 0 <= answer.unknown <= 1


def test_new_classes_are_told_apart_from_old_ones(
    taught: ContinualClassifier, tmp_path: Path
) -> None:
    fresh = write_photos(tmp_path / "fresh", NAMES[:5], each=6, seed=9)
    answers = taught.predict(fresh)
    right = [a.label == Path(a.name).parent.name for a in answers]
    assert len(answers) == 30
    assert np.mean(right) > 0.8


def test_history_tells_what_was_learned(taught: ContinualClassifier) -> None:
    rows = taught.history()
    assert [row["frozen_fit"] for row in rows] == [
        True,
        False,
    ] * 2
    assert [row["parent"] for row in rows] == [None, None, 2, 2]
    first, second = rows[1::2]
    assert first["new_classes"] == ["ash", "birch", "cedar"]
    assert second["new_classes"] == ["date", "elm"]
    assert second["known_classes"] == ["ash"]
    assert (first["photos"], second["photos"]) == (30, 60)
    assert (first["tested"], second["tested"]) == (6, 12)
    assert [first["current"], second["current"]] == [False, True]


def test_held_out_photos_are_never_trained_on(taught: ContinualClassifier) -> None:
    store = taught.store
    rows = store.photos(store.version()).values()
    parts = [row[1] for row in rows]
    assert (parts.count("train"), parts.count("test")) == (48, 12)
    assert all(bool(row[2]) == (row[1] == "test") for row in rows)  # no path of a training photo


def test_answers_do_not_depend_on_the_batch(taught: ContinualClassifier, spring: Path) -> None:
    photos = sorted(spring.glob("*/*.png"))
    alone = [taught.predict(photo) for photo in photos]
    for size in (7, 64):
        for one, many in zip(alone, taught.predict(photos, batch_size=size), strict=True):
            assert many.label == one.label
            assert many.probabilities == pytest.approx(one.probabilities, abs=1e-5)
            assert many.unknown == pytest.approx(one.unknown, abs=1e-4)


def test_all_forms_of_one_picture_get_one_answer(taught: ContinualClassifier, spring: Path) -> None:
    path = spring / "cedar" / "0-3.png"
    pixels = np.asarray(Image.open(path).convert("RGB"))
    forms = [path, str(path), path.read_bytes(), Image.open(path), pixels]
    forms.append(pixels.transpose(2, 0, 1))
    answers = [taught.predict(form) for form in forms]
    for answer in answers[1:]:
        assert answer.label == answers[0].label
        assert answer.confidence == pytest.approx(answers[0].confidence, abs=1e-9)


def test_threads_get_the_answers_they_would_get_alone(
    taught: ContinualClassifier, spring: Path
) -> None:
    photos = sorted(spring.glob("*/*.png"))
    expected = [taught.predict(photo).probabilities for photo in photos]
    again = ContinualClassifier(taught.folder)  # it has to load while they ask
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda p: again.predict(p).probabilities, photos * 2))
    assert found == expected * 2


def test_probabilities_of_an_earlier_version_are_those_of_its_classes(
    taught: ContinualClassifier, spring: Path
) -> None:
    photos = sorted(spring.glob("*/0-0.png"))
    found = taught.predict_proba(photos, version=2)
    answers = taught.predict(photos, version=2)
    assert found.tolist() == [[a.probabilities[name] for name in NAMES[:3]] for a in answers]
    assert taught.predict_proba(photos).shape == (3, 5)


def test_undo_restores_the_version_before_exactly(make: Make, spring: Path, summer: Path) -> None:
    classifier = make()
    classifier.learn(spring, report=False, quiet=True)
    before = classifier.predict(spring)
    state = tensors_of(classifier)
    classifier.learn(summer, report=False, quiet=True)
    assert len(classifier.classes_) == 5
    assert classifier.undo() == 2  # both steps of a learn at once
    assert [a.probabilities for a in classifier.predict(spring)] == [
        a.probabilities for a in before
    ]
    assert all(torch.equal(v, state[k]) for k, v in tensors_of(classifier).items())


def test_old_private_state_stays_and_the_backbone_too(
    make: Make, spring: Path, summer: Path
) -> None:
    classifier = make()
    classifier.learn(spring, report=False, quiet=True)
    old = tensors_of(classifier)
    classifier.learn(summer, report=False, quiet=True)
    new = tensors_of(classifier)
    drift = (new["gaussians.means"][:3] - old["gaussians.means"]).norm(dim=1)
    apart = torch.pdist(old["gaussians.means"]).min()
    assert (drift > 0).all()
    assert (drift < apart / 2).all()  # they are the same classes
    assert new["cells.label"].tolist() == [0, 1, 2, 0, 3, 4]
    assert new["cells.task"].tolist() == [0, 0, 0, 1, 1, 1]
    loaded = load_backbone("nano")
    assert classifier.store.header()["backbone"]["sha256"] == loaded.weights_sha256


def test_accuracy_before_and_after_is_of_the_same_photos(taught: ContinualClassifier) -> None:
    info = taught.store.version().info
    earlier = taught.store.version(1).info
    assert info["before"] == earlier["accuracy"]  # all photos are still there
    assert sum(tested for _, tested in info["accuracy"].values()) == 12


def test_held_out_photos_that_are_gone_are_counted(
    make: Make, spring: Path, summer: Path, tmp_path: Path
) -> None:
    classifier = make()
    moved = tmp_path / "moved"
    shutil.copytree(spring, moved)
    classifier.learn(moved, report=False, quiet=True)
    shutil.rmtree(moved)
    learned = classifier.learn(summer, report=False, quiet=True)
    info = classifier.store.version().info
    assert any("6 of 6 held-out photos" in note for note in info["notes"])
    assert learned.changes.accuracy("before") is None
    assert info["accuracy"]["birch"] == [0, 0]
    assert "birch" in learned.changes.to_dict()["accuracy_by_class"]


def test_arrays_datasets_and_single_images_are_learned(make: Make) -> None:
    rng = np.random.default_rng(3)
    images = np.concatenate([stripes(c, 10, rng) for c in (0, 2)])
    labels = [7] * 10 + [9] * 10
    classifier = make()
    assert classifier.partial_fit(images, labels) is classifier
    assert classifier.classes_.tolist() == [7, 9]
    said = classifier.predict(images)
    assert isinstance(said, np.ndarray)
    assert (said == labels).mean() > 0.9
    assert classifier.score(images, labels) == (said == labels).mean()
    chances = classifier.predict_proba(images)
    assert chances.shape == (20, 2)
    assert (classifier.classes_[chances.argmax(1)] == said).all()

    class Pairs(torch.utils.data.Dataset):
        classes = ("oak", "pine")

        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> tuple[Image.Image, int]:
            own = stripes(4 + index % 2, 1, rng)[0]
            return Image.fromarray(own), index % 2

    classifier.learn(Pairs(), report=False, quiet=True)
    assert classifier.classes_.tolist() == ["7", "9", "oak", "pine"]


def test_one_class_and_one_photo_a_class_can_be_learned(make: Make, tmp_path: Path) -> None:
    lonely = write_photos(tmp_path / "lonely", NAMES[:2], each=1)
    classifier = make()
    learned = classifier.learn(lonely, report=False, quiet=True)
    assert learned.changes.accuracy() is None
    assert not classifier.store.version().info["calibration"]["fitted"]
    assert classifier.predict(lonely / "ash" / "0-0.png").label == "ash"
    classifier.learn(write_photos(tmp_path / "one", ("elm",)), report=False, quiet=True)
    assert len(classifier.classes_) == 3
    alone = make("alone")
    alone.learn(tmp_path / "one", report=False, quiet=True)
    answer = alone.predict(lonely / "ash" / "0-0.png")
    assert (answer.label, answer.confidence) == ("elm", 1.0)
    assert answer.unknown == 1.0  # there is nothing else to be, but it is far from all elms


def test_a_single_photo_does_not_replace_the_scale_of_many(make: Make, tmp_path: Path) -> None:
    many = write_photos(tmp_path / "many", NAMES[:3])  # of which six are held out
    few = write_photos(tmp_path / "few", ("elm",), each=5)
    classifier = make()

    def scale(photos: Path) -> list[float]:
        classifier.learn(photos, effort="instant", report=False, quiet=True)
        return classifier.store.version().info["distances"]

    first = scale(many)
    shutil.rmtree(many)
    assert scale(few) == first
    classifier.forget("ash", quiet=True)
    info = classifier.store.version().info
    assert (info["distances"], info["calibration"]["images"]) == (first, 1)
    assert scale(write_photos(tmp_path / "new", NAMES[:3], seed=1)) != first  # seven are


def test_other_pictures_are_stranger_than_known_ones(
    taught: ContinualClassifier, tmp_path: Path
) -> None:
    known = taught.predict(write_photos(tmp_path / "known", NAMES[:5], seed=5))
    noise = np.random.default_rng(0).integers(0, 255, (20, 32, 32, 3), dtype=np.uint8)
    strange = taught.predict(list(noise))
    assert np.mean([a.unknown for a in strange]) > np.mean([a.unknown for a in known]) + 0.2
    limit = strange[0].unknown - 0.01
    assert taught.predict(noise[0], unknown_threshold=limit).is_unknown
    assert not taught.predict(noise[0], unknown_threshold=1.0).is_unknown


def test_while_one_learns_another_is_refused_and_answers_go_on(
    make: Make, spring: Path, summer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, other = make(), make()
    classifier.learn(spring, report=False, quiet=True)
    entered, leave = threading.Event(), threading.Event()
    inner = session.run

    def slow(*arguments: Any) -> object:
        entered.set()
        assert leave.wait(60)
        return inner(*arguments)

    monkeypatch.setattr(session, "run", slow)
    thread = threading.Thread(
        target=lambda: classifier.learn(summer, report=False, quiet=True), daemon=True
    )
    thread.start()
    assert entered.wait(60)
    try:
        with pytest.raises(UserError, match="learning"):
            other.learn(summer, report=False, quiet=True)
        with pytest.raises(UserError, match="learning"):
            other.undo()
        assert len(other.predict(spring / "ash" / "0-0.png").probabilities) == 3
    finally:
        leave.set()
        thread.join(120)
    assert len(other.predict(spring / "ash" / "0-0.png").probabilities) == 5


def test_no_picture_is_kept_in_the_folder(taught: ContinualClassifier, spring: Path) -> None:
    store = taught.store
    contents = {p: p.read_bytes() for p in store.folder.rglob("*") if p.is_file()}
    assert {p.suffix for p in contents} <= {".json", ".safetensors", ".lock", ""}
    encoded = [p.read_bytes() for p in spring.glob("*/*.png")]
    pixels = [np.asarray(Image.open(io.BytesIO(e)).convert("RGB")) for e in encoded]
    signs = [b"\x89PNG", b"\xff\xd8\xff", b"RIFF", b"GIF8", b"BM6"]
    for content in contents.values():
        for image, raw in zip(pixels, encoded, strict=True):
            assert raw[:64] not in content
            assert raw[-64:] not in content
            for form in (image, image.transpose(2, 0, 1), image / np.float32(255)):
                assert form.tobytes()[:256] not in content
    for path, content in contents.items():
        if path.suffix == ".json":
            assert not any(sign in content for sign in signs), path
    # No tensor has a row for each photo: 60 of them, 48 trained on.
    kept = store.tensors(store.version())
    assert {5, 6} <= {n for tensor in kept.values() for n in tensor.shape}  # classes, cells
    assert not {48, 60} & {n for tensor in kept.values() for n in tensor.shape}


def test_plan_changes_nothing_and_counts(make: Make, spring: Path, tmp_path: Path) -> None:
    plan = make().plan(spring)
    assert (plan.training, plan.held_out, plan.image_size) == (24, 6, 32)
    assert plan.new_classes == ["ash", "birch", "cedar"]
    assert (plan.epochs, plan.batch_size) == (2, 8)
    assert plan.to_dict()["total_seconds"] > 0
    assert "24 training photos" in plan.text()
    assert not (tmp_path / "trees").exists()


def test_exported_backbone_file_is_used(make: Make, spring: Path, tmp_path: Path) -> None:
    from hashprompt.backbone.names import nano_file

    weights = tmp_path / "weights" / "mine.safetensors"
    weights.parent.mkdir()
    shutil.copy(nano_file(), weights)
    classifier = make(backbone=str(weights))
    classifier.learn(spring, report=False, quiet=True)
    photo = spring / "ash" / "0-0.png"
    expected = classifier.predict(photo).probabilities
    target = classifier.export(tmp_path / "copy")
    bare = classifier.export(tmp_path / "bare", backbone=False)
    weights.unlink()
    assert ContinualClassifier(target).predict(photo).probabilities == expected
    with pytest.raises(UserError, match="backbone"):
        ContinualClassifier(bare).predict(photo)
    shutil.copy(nano_file(), weights)
    assert ContinualClassifier(bare).predict(photo).probabilities == expected


def test_another_backbone_is_refused(taught: ContinualClassifier, spring: Path) -> None:
    store = json.loads((taught.store.folder / "classifier.json").read_text())
    store["backbone"]["sha256"] = "0" * 64
    other = ContinualClassifier(taught.folder)
    other.store.header = lambda: store  # type: ignore[method-assign]
    with pytest.raises(UserError, match="weights differ"):
        other.predict(spring / "ash" / "0-0.png")


def test_nothing_learned_yet_is_said(make: Make, spring: Path) -> None:
    classifier = make()
    with pytest.raises(UserError, match="learned nothing yet"):
        classifier.predict(spring)
    assert classifier.history() == []
    with pytest.raises(UserError):
        classifier.undo()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epohs": 3}, "epoch"),
        ({"method": "l2p"}, "Unknown option `method`"),
        ({"backbone": "no-such-vit"}, "backbone"),
        ({"image_size": 33}, "patch"),
        ({"devices": 2}, "one device"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    make: Make, spring: Path, tmp_path: Path, options: dict, match: str
) -> None:
    with pytest.raises(UserError, match=match):
        make(**options).learn(spring, report=False, quiet=True)
    assert not (tmp_path / "trees" / "classifier.json").exists()
    make().learn(spring, report=False, quiet=True)  # and the folder can still be used


def test_what_the_first_learn_fixed_cannot_be_changed(
    taught: ContinualClassifier, spring: Path
) -> None:
    photo = spring / "ash" / "0-0.png"
    free = ContinualClassifier(taught.folder, device="cpu", eval_batch_size=3, epochs=9)
    assert free.predict(photo).probabilities == taught.predict(photo).probabilities
    same = ContinualClassifier(taught.folder, layers=None, image_size=32)
    assert same.predict(photo).label == "ash"
    with pytest.raises(UserError, match="image_size=32, which its first session fixed"):
        ContinualClassifier(taught.folder, image_size=64).predict(photo)
    with pytest.raises(UserError, match="image_size"):
        ContinualClassifier(taught.folder, imagesize=64).predict(photo)


def test_a_skipping_learn_is_resumed_as_it_began(make: Make, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", NAMES[:2])
    (photos / "ash" / "broken.jpg").write_bytes(b"no picture")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "evaluate_version", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make().learn(photos, unreadable="skip", report=False, quiet=True)
    assert make().learn(resume=True, report=False, quiet=True).version == 2


def test_the_example_in_the_documentation_works() -> None:
    import doctest

    import hashprompt.photos.continual as module

    assert doctest.testmod(module).attempted >= 5
    assert doctest.testmod(module).failed == 0


def test_an_answer_in_half_precision_is_close(taught: ContinualClassifier, spring: Path) -> None:
    half = ContinualClassifier(taught.folder)
    config = half.config()
    config.__dict__["run_options"] = config.run_options.model_copy(
        update={"precision": "bf16-mixed"}
    )
    photo = spring / "ash" / "0-0.png"
    found, expected = half.predict(photo), taught.predict(photo)
    assert found.label == expected.label
    near, exact = (answer.closest[0]["distance"] for answer in (found, expected))
    assert near != exact
    assert near == pytest.approx(exact, rel=0.05)


def test_a_device_that_is_not_there_is_refused(taught: ContinualClassifier, spring: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UserError, match="device=cuda"):
        ContinualClassifier(taught.folder, device="cuda").predict(spring)
