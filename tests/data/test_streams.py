"""Streams: which images arrive in which task, under which label. Every image carries its id."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hashprompt.data.dataset import ImageSource, ImageTable
from hashprompt.data.streams import sources, stream
from hashprompt.data.streams.stream import Stream, load_stream
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions

SOURCE_CLASSES = (2, 3, 5, 7, 11, 13, 17)  # with gaps: a source need not number them densely
TRAIN_EACH, TEST_EACH = 5, 3
TRAIN, TEST = 0, 1


def picture(label: int, number: int, split: int) -> np.ndarray:
    """A 4 × 4 image whose channels are its class, its number and its split."""
    return np.broadcast_to(np.array([label, number, split], dtype=np.uint8), (4, 4, 3))


def arrays() -> dict[str, np.ndarray]:
    """Interleaved: the first image of every class, then the second, …"""
    made = {}
    for name, split, each in (("train", TRAIN, TRAIN_EACH), ("test", TEST, TEST_EACH)):
        rows = [(c, n) for n in range(each) for c in SOURCE_CLASSES]
        made[f"x_{name}"] = np.stack([picture(c, n, split) for c, n in rows])
        made[f"y_{name}"] = np.array([c for c, _ in rows])
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "marked.npz", **arrays())
    return tmp_path / "marked.npz"


def cut(file: Path, seed: int = 0, **options: Any) -> Stream:
    return load_stream(f"npz:{file}", StreamOptions(**options), seed)


def marks(table: ImageTable) -> list[tuple[int, ...]]:
    """(class, number, split) of every image, read from its pixels."""
    return [tuple(row) for row in table.images[:, :, 1, 2].tolist()]


def every(stream: Stream, split: str) -> list[tuple[int, ...]]:
    return [mark for task in stream.tasks for mark in marks(getattr(task, split))]


# The order of classes. ---------------------------------------------------------------------


def test_the_order_follows_from_the_seed_alone(file: Path) -> None:
    first = cut(file, seed=3).class_order
    torch.rand(7)  # whatever else uses chance in between
    assert cut(file, seed=3).class_order == first
    assert sorted(first) == list(SOURCE_CLASSES)
    assert len({cut(file, seed=seed).class_order for seed in range(8)}) > 5


def test_order_seed_takes_the_place_of_the_seed(file: Path) -> None:
    orders = {cut(file, seed=seed, order_seed=4).class_order for seed in range(3)}
    assert orders == {cut(file, seed=4).class_order}


def test_natural_order_is_that_of_the_source(file: Path) -> None:
    assert cut(file, seed=5, class_order="natural").class_order == SOURCE_CLASSES


# Tasks and labels. -------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_label_is_the_place_of_its_class_in_the_order(file: Path, split: str) -> None:
    stream = cut(file, seed=1, tasks=3)
    for task in stream.tasks:
        table = getattr(task, split)
        for label, (true_class, _, _) in zip(table.labels.tolist(), marks(table), strict=True):
            assert stream.class_order[label] == true_class
            assert label in task.classes


def test_tasks_are_disjoint_and_cover_everything(file: Path) -> None:
    stream = cut(file, seed=2, tasks=3)
    assert [task.classes for task in stream.tasks] == [(0, 1, 2), (3, 4), (5, 6)]
    train = [(c, n, TRAIN) for c in SOURCE_CLASSES for n in range(TRAIN_EACH)]
    test = [(c, n, TEST) for c in SOURCE_CLASSES for n in range(TEST_EACH)]
    assert sorted(every(stream, "train")) == train
    assert sorted(every(stream, "test")) == test


def test_as_many_tasks_as_classes_unless_told(file: Path) -> None:
    assert [task.classes for task in cut(file).tasks] == [(c,) for c in range(7)]


def test_fewer_classes_are_the_beginning_of_the_order(file: Path) -> None:
    whole, part = cut(file, seed=6), cut(file, seed=6, classes=4, tasks=2)
    assert part.class_order == whole.class_order[:4]
    assert {c for c, _, _ in every(part, "train")} == set(whole.class_order[:4])
    assert {c for c, _, _ in every(part, "test")} == set(whole.class_order[:4])


def test_limits_take_the_first_images_of_each_class(file: Path) -> None:
    stream = cut(file, tasks=2, train_per_class=2, test_per_class=1)
    assert sorted(every(stream, "train")) == [(c, n, TRAIN) for c in SOURCE_CLASSES for n in (0, 1)]
    assert sorted(every(stream, "test")) == [(c, 0, TEST) for c in SOURCE_CLASSES]


def test_grey_images_get_three_equal_channels(tmp_path: Path) -> None:
    grey = {k: v[..., 1] if k.startswith("x") else v for k, v in arrays().items()}
    np.savez(tmp_path / "grey.npz", **grey)
    images = cut(tmp_path / "grey.npz", class_order="natural").tasks[0].train.images
    assert images.shape == (TRAIN_EACH, 3, 4, 4)
    assert images[:, :, 0, 0].tolist() == [[n, n, n] for n in range(TRAIN_EACH)]


# Holding out. ------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "held"), [(0.2, 1), (0.4, 2), (0.01, 1), (0.99, 4)])
def test_the_held_out_images_are_training_images_that_are_not_trained(
    file: Path, share: float, held: int
) -> None:
    stream = cut(file, tasks=3, holdout=share)
    train, test = set(every(stream, "train")), set(every(stream, "test"))
    assert not train & test
    assert train | test == {(c, n, TRAIN) for c in SOURCE_CLASSES for n in range(TRAIN_EACH)}
    first = TRAIN_EACH - held
    assert test == {(c, n, TRAIN) for c in SOURCE_CLASSES for n in range(first, TRAIN_EACH)}


def test_a_class_of_one_image_stays_in_training(file: Path) -> None:
    few = arrays()
    keep = (few["y_train"] != 2) | (few["x_train"][:, 0, 0, 1] == 0)
    np.savez(file, **few | {"x_train": few["x_train"][keep], "y_train": few["y_train"][keep]})
    stream = cut(file, tasks=1, holdout=0.5)
    assert (2, 0, TRAIN) in every(stream, "train")
    assert 2 not in {c for c, _, _ in every(stream, "test")}


def test_a_task_without_test_images_is_refused(file: Path) -> None:
    few = arrays()
    keep = few["y_test"] != 2
    np.savez(file, **few | {"x_test": few["x_test"][keep], "y_test": few["y_test"][keep]})
    with pytest.raises(UserError, match=r"has 5 training and 0 test images\. Use fewer tasks"):
        cut(file, tasks=7)
    assert len(cut(file, tasks=3).tasks) == 3  # its class has company then


# Domains. ----------------------------------------------------------------------------------


def domain_table(each: int, split: int) -> ImageTable:
    rows = [(c, n, d) for d in range(3) for c in range(4) for n in range(each)]
    images = np.stack([picture(c, n, 10 * d + split) for c, n, d in rows])
    labels, domains = (torch.tensor([row[i] for row in rows]) for i in (0, 2))
    return ImageTable(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()), labels, domains)


@pytest.fixture
def domains(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ImageSource(
        "made",
        domain_table(3, TRAIN),
        domain_table(2, TEST),
        class_names=("a", "b", "c", "d"),
        tasks=3,
        domain_names=("ink", "chalk", "pen"),
    )
    monkeypatch.setattr(stream, "load_source", lambda *given: source)


@pytest.mark.usefixtures("domains")
def test_every_task_is_one_domain_with_all_classes() -> None:
    stream = load_stream("made", StreamOptions(), seed=1)
    assert stream.scenario == "domain"
    assert stream.class_order == (0, 1, 2, 3)
    for d, task in enumerate(stream.tasks):
        assert task.classes == (0, 1, 2, 3)
        assert marks(task.train) == [(c, n, 10 * d) for c in range(4) for n in range(3)]
        assert marks(task.test) == [(c, n, 10 * d + 1) for c in range(4) for n in range(2)]
        assert task.train.labels.tolist() == [c for c in range(4) for _ in range(3)]


@pytest.mark.usefixtures("domains")
def test_domain_streams_can_be_shortened_and_thinned() -> None:
    options = StreamOptions(tasks=2, classes=2, train_per_class=1, holdout=0.4)
    stream = load_stream("made", options, seed=1)
    assert [marks(t.train) for t in stream.tasks] == [
        [(0, 0, 0), (1, 0, 0)],
        [(0, 0, 10), (1, 0, 10)],
    ]
    assert [marks(t.test) for t in stream.tasks] == [
        [(0, 2, 0), (1, 2, 0)],
        [(0, 2, 10), (1, 2, 10)],
    ]


@pytest.mark.usefixtures("domains")
def test_more_tasks_than_domains_are_refused() -> None:
    with pytest.raises(UserError, match="4 tasks, but the stream has 3 domains"):
        load_stream("made", StreamOptions(tasks=4), seed=1)


# What identifies a stream. -----------------------------------------------------------------


def test_the_fingerprint_knows_the_data_and_nothing_else(file: Path) -> None:
    prints = {cut(file, seed=s, tasks=t).fingerprint for s in (0, 1) for t in (1, 3)}
    assert len(prints) == 1


@pytest.mark.parametrize("array", ["x_train", "y_train", "x_test", "y_test"])
def test_one_changed_number_changes_the_fingerprint(file: Path, array: str) -> None:
    before = cut(file).fingerprint
    changed = arrays()
    if array.startswith("x"):
        changed[array][-1, 3, 3, 2] ^= 1
    else:
        changed[array][-1] = 2  # another class that exists
    np.savez(file, **changed)
    assert cut(file).fingerprint != before


def test_embedded_streams_are_drawn_once_in_a_process() -> None:
    first, again = (load_stream("glyphs", StreamOptions(), seed) for seed in (0, 1))
    assert again.fingerprint == first.fingerprint
    assert sources.embedded_source("glyphs") is sources.embedded_source("glyphs")
