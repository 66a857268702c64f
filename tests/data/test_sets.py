"""The published benchmarks, on small trees in their official layouts."""

import hashlib
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
import yaml
from torchvision import datasets

from hashprompt.data.sets import photo_sets
from hashprompt.data.sets.base import SETS
from hashprompt.data.sets.photo_sets import CORE50_TEST as TEST
from hashprompt.data.sets.photo_sets import CORE50_TRAIN as TRAIN
from hashprompt.data.streams.names import available_streams
from hashprompt.data.streams.stream import Stream, load_stream
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions

RNG = np.random.default_rng(0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def cut(root: Path) -> Callable[..., Stream]:
    def load(name: str, **options: Any) -> Stream:
        given = {"class_order": "natural", "data_root": str(root), **options}
        return load_stream(name, StreamOptions(**given), 0)

    return load


@pytest.fixture
def refused(cut: Callable[..., Stream]) -> Callable[..., str]:
    def load(name: str, **options: Any) -> str:
        with pytest.raises(UserError) as caught:
            cut(name, **options)
        return str(caught.value)

    return load


def file_names(task: Any, part: str) -> list[str]:
    return [Path(name).name for name in getattr(task, part).images.names()]


# What is missing. --------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_a_set_that_is_not_there_says_what_to_put_where(
    name: str, refused: Any, root: Path
) -> None:
    message = refused(name)
    assert f"`{name}` is not complete on this machine: there is no {root}" in message
    assert f"Expected in {root}: {SETS[name].layout}." in message
    assert "HASHPROMPT_DATA" in message
    for remote in SETS[name].files:
        assert remote.url in message
        assert f"`hashprompt data fetch {name}`" in message
        assert len(remote.md5) == 32


def test_the_data_root_is_the_option_the_variable_or_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def where(**options: Any) -> str:
        with pytest.raises(UserError) as caught:
            load_stream("split-cub200", StreamOptions(**options), 0)
        return str(caught.value)

    monkeypatch.setenv("HASHPROMPT_DATA", str(tmp_path / "variable"))
    assert f"no {tmp_path / 'option' / 'CUB_200_2011'}" in where(data_root=str(tmp_path / "option"))
    assert f"no {tmp_path / 'variable' / 'CUB_200_2011'}" in where()
    monkeypatch.delenv("HASHPROMPT_DATA")
    monkeypatch.setenv("HASHPROMPT_CACHE", str(tmp_path / "cache"))
    assert f"no {tmp_path / 'cache' / 'datasets' / 'CUB_200_2011'}" in where()


# CIFAR. ------------------------------------------------------------------------------------


def write_pickle(path: Path, content: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content))
    return hashlib.md5(path.read_bytes()).hexdigest()


def cifar_rows(classes: int, each: int, key: str) -> dict[str, Any]:
    labels = list(range(classes)) * each
    pixels = RNG.integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    pixels[:, 0] = labels  # the class, in the first red pixel
    return {"data": pixels, key: labels}


@pytest.fixture
def cifar100(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files in the format of CIFAR-100, which torchvision takes for the published ones."""
    folder = root / "cifar-100-python"
    names = [f"class {i}" for i in range(100)]
    sums = {
        "train": write_pickle(folder / "train", cifar_rows(100, 3, "fine_labels")),
        "test": write_pickle(folder / "test", cifar_rows(100, 1, "fine_labels")),
        "meta": write_pickle(folder / "meta", {"fine_label_names": names}),
    }
    monkeypatch.setattr(datasets.CIFAR100, "train_list", [["train", sums["train"]]])
    monkeypatch.setattr(datasets.CIFAR100, "test_list", [["test", sums["test"]]])
    meta = {"filename": "meta", "key": "fine_label_names", "md5": sums["meta"]}
    monkeypatch.setattr(datasets.CIFAR100, "meta", meta)
    return folder


@pytest.mark.usefixtures("cifar100")
def test_split_cifar100_has_ten_twenty_or_fifty_tasks(cut: Any) -> None:
    stream = cut("split-cifar100")
    assert (stream.name, stream.split, len(stream.tasks)) == ("split-cifar100", "official", 10)
    assert stream.class_names[:2] == ("class 0", "class 1")
    assert [len(task.classes) for task in cut("split-cifar100", tasks=20).tasks] == [5] * 20
    assert [len(task.classes) for task in cut("split-cifar100", tasks=50).tasks] == [2] * 50
    train = stream.tasks[3].train
    assert train.images.shape == (30, 3, 32, 32)
    assert train.images[:, 0, 0, 0].tolist() == train.labels.tolist()
    assert any(
        "300 training and 100 test images; the full set has 50,000" in n for n in stream.notes
    )


@pytest.mark.usefixtures("cifar100")
@pytest.mark.parametrize(
    ("order", "first"),
    [("np1993", (68, 56, 78, 8, 23)), ("py1", (53, 37, 65, 51, 4)), ("py4", (73, 86, 82, 23, 1))],
)
def test_published_class_orders(order: str, first: tuple[int, ...], cut: Any) -> None:
    found = cut("split-cifar100", class_order=order).class_order
    assert sorted(found) == list(range(100))
    assert found[:5] == first


@pytest.mark.usefixtures("cifar100")
def test_orders_that_do_not_exist_are_refused(refused: Any) -> None:
    assert "Did you mean `np1993`" in refused("split-cifar100", class_order="np1994")


@pytest.mark.usefixtures("cifar100")
def test_coarse_cifar_has_every_superclass_in_each_of_five_domains(cut: Any) -> None:
    stream = cut("cifar100-coarse")
    assert (stream.scenario, len(stream.tasks), len(stream.class_names)) == ("domain", 5, 20)
    fine_seen: list[int] = []
    for task in stream.tasks:
        fine = task.train.images[:, 0, 0, 0].tolist()
        fine_seen += sorted(set(fine))
        assert len(set(fine)) == 20
        assert sorted(set(task.train.labels.tolist())) == list(range(20))
    assert sorted(fine_seen) == list(range(100))
    assert stream.class_names[4] == "fruit_and_vegetables"  # apples are class 0 of the fine ones
    assert 0 in stream.tasks[0].train.images[stream.tasks[0].train.labels == 4][:, 0, 0, 0].tolist()


def test_pickles_that_are_not_the_published_ones_are_never_opened(
    cifar100: Path, refused: Any, tmp_path: Path
) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "boom",)

    (cifar100 / "train").write_bytes(pickle.dumps(Bomb()))
    message = refused("split-cifar100")
    assert "are not the published ones (checksums differ) and are not opened" in message
    assert not (tmp_path / "boom").exists()


# CUB. --------------------------------------------------------------------------------------


@pytest.fixture
def cub(root: Path, write: Any) -> Path:
    """Three species of four images; the first half of each is for training."""
    folder = root / "CUB_200_2011"
    species = ["001.Albatross", "002.Auklet", "003.Bunting"]
    lines: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    number = 0
    for label, name in enumerate(species, start=1):
        for place in range(4):
            number += 1
            path = f"{name}/{name[4:]}_{place}.jpg"
            write(folder / "images" / path, number, 20 + number, 16)
            lines["images"].append(f"{number} {path}")
            lines["image_class_labels"].append(f"{number} {label}")
            lines["train_test_split"].append(f"{number} {int(place < 2)}")
    lines["classes"] = [f"{i} {name}" for i, name in enumerate(species, start=1)]
    for name, content in lines.items():
        (folder / f"{name}.txt").write_text("\n".join(content) + "\n")
    return folder


@pytest.mark.usefixtures("cub")
def test_cub_follows_its_tables(cut: Any) -> None:
    stream = cut("split-cub200", tasks=3)
    assert (stream.split, stream.class_names[0]) == ("official", "001.Albatross")
    for task, species in zip(stream.tasks, ("Albatross", "Auklet", "Bunting"), strict=True):
        assert file_names(task, "train") == [f"{species}_0.jpg", f"{species}_1.jpg"]
        assert file_names(task, "test") == [f"{species}_2.jpg", f"{species}_3.jpg"]


def test_damaged_tables_of_cub_are_refused(cub: Path, refused: Any) -> None:
    (cub / "train_test_split.txt").write_text("1 1\n2 1\n")
    assert "train_test_split.txt lacks '3'" in refused("split-cub200")
    (cub / "images.txt").unlink()
    assert "there is no" in refused("split-cub200")


def test_a_missing_image_of_cub_is_named(cub: Path, refused: Any) -> None:
    (cub / "images" / "002.Auklet" / "Auklet_1.jpg").unlink()
    assert "Auklet_1.jpg (No such file or directory)" in refused("split-cub200")


def test_the_lamda_split_of_cub_comes_from_the_users_folder(
    tree: Any, root: Path, cut: Any
) -> None:
    shutil.move(tree("train/b", "train/a", "test/a", "test/b"), root / "cub")
    stream = cut("split-cub200-lamda", tasks=1)
    assert (stream.name, stream.split) == ("split-cub200-lamda", "lamda")


# ImageNet-R. -------------------------------------------------------------------------------

WNIDS = ("n01443537", "n01484850", "n02007558")


@pytest.fixture
def renditions(root: Path, write: Any) -> Path:
    folder = root / "imagenet-r"
    for row, wnid in enumerate(WNIDS):
        for number in range(10):
            write(folder / wnid / f"art_{number}.jpg", 10 * row + number, 20, 15)
    (folder / "README.txt").write_text("ImageNet-R")
    return folder


def write_lists(root: Path, train: list[str], test: list[str]) -> None:
    for part, paths in (("train", train), ("test", test)):
        content = {"data": [f"data/imagenet-r/{part}/{p}" for p in paths], "targets": []}
        (root / f"imagenet-r_{part}.yaml").write_text(yaml.safe_dump(content))


@pytest.mark.usefixtures("renditions")
def test_imagenet_r_is_divided_by_class_and_says_how(cut: Any) -> None:
    stream = cut("split-imagenet-r", tasks=3)
    assert (stream.split, stream.class_names) == ("toolkit-v1", WNIDS)
    assert [(len(t.train), len(t.test)) for t in stream.tasks] == [(8, 2)] * 3
    assert "ImageNet-R has no official split; toolkit-v1 is used." in stream.notes


def test_imagenet_r_follows_lists_wherever_the_images_were_moved(
    renditions: Path, root: Path, cut: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = [f"{wnid}/art_{n}.jpg" for wnid in WNIDS for n in (0, 7)]
    train = [f"{wnid}/art_{n}.jpg" for wnid in WNIDS for n in (1, 2, 3, 4, 5, 6, 8, 9)]
    write_lists(root, train, test)
    stream = cut("split-imagenet-r", tasks=3)
    assert stream.split == "own-lists"  # not the published ones, and that is said
    assert any("imagenet-r_train.yaml is not the published list" in n for n in stream.notes)
    assert file_names(stream.tasks[1], "test") == ["art_0.jpg", "art_7.jpg"]

    for number, wnid in enumerate(WNIDS):  # as HiDe-Prompt's code leaves them
        for image in sorted((renditions / wnid).iterdir()):
            place = renditions / ("test" if "3" in image.name else "train") / wnid
            place.mkdir(parents=True, exist_ok=True)
            image.rename(place / image.name)
        (renditions / wnid).rmdir()
        assert number < 3
    assert cut("split-imagenet-r", tasks=3).fingerprint == stream.fingerprint
    found = cut("split-imagenet-r", tasks=3, split="folders")
    assert file_names(found.tasks[0], "test") == ["art_3.jpg"]

    sums = {f.name: hashlib.md5(f.read_bytes()).hexdigest() for f in root.glob("*.yaml")}
    monkeypatch.setattr(photo_sets, "R_LISTS_MD5", sums)
    assert cut("split-imagenet-r", tasks=3).split == "coda-yaml"


@pytest.mark.usefixtures("renditions")
def test_bad_lists_of_imagenet_r_are_refused(root: Path, refused: Any) -> None:
    assert "imagenet-r_train.yaml" in refused("split-imagenet-r", split="coda-yaml")
    write_lists(root, [f"{WNIDS[0]}/art_0.jpg"], [f"{WNIDS[0]}/art_0.jpg"])
    assert "is listed twice" in refused("split-imagenet-r")
    write_lists(root, [f"{WNIDS[0]}/art_0.jpg"], [f"{WNIDS[0]}/art_99.jpg"])
    assert "1 of 2 listed images are not in" in refused("split-imagenet-r")
    (root / "imagenet-r_test.yaml").write_text("- just\n- a list\n")
    assert "must hold `data:`" in refused("split-imagenet-r")
    assert "it knows coda-yaml, toolkit-v1, folders" in refused("split-imagenet-r", split="mine")
    assert "needs imagenet-r/train and imagenet-r/test" in refused(
        "split-imagenet-r", split="folders"
    )


def test_nothing_of_the_user_is_moved_or_changed(renditions: Path, cut: Any) -> None:
    def state() -> dict[str, Any]:
        files = sorted(renditions.rglob("*"))
        return {str(f): (f.stat().st_mtime_ns, f.is_file() and f.read_bytes()) for f in files}

    before = state()
    cut("split-imagenet-r", tasks=3)
    assert state() == before


# CORe50. -----------------------------------------------------------------------------------


@pytest.fixture
def core50(root: Path, write: Any) -> Path:
    """All eleven sessions with three objects of two frames."""
    folder = root / "core50_128x128"
    for session in range(1, 12):
        for thing in (1, 2, 10):
            for frame in range(2):
                name = f"C_{session:02d}_{thing:02d}_{frame:03d}.png"
                seed = 1000 * session + 10 * thing + frame
                write(folder / f"s{session}" / f"o{thing}" / name, seed, 16, 16)
    return folder


@pytest.mark.usefixtures("core50")
def test_core50_learns_eight_sessions_and_is_tested_on_three_others(cut: Any) -> None:
    stream = cut("core50")
    assert (stream.scenario, stream.split, stream.shared_test) == ("domain", "NI", True)
    assert stream.domain_names == tuple(f"s{s}" for s in TRAIN)
    assert stream.class_names == ("o1", "o2", "o10")  # by number, not by letter
    for session, task in zip(TRAIN, stream.tasks, strict=True):
        assert {name[2:4] for name in file_names(task, "train")} == {f"{session:02d}"}
        assert task.test is stream.tasks[0].test
    assert {name[2:4] for name in file_names(stream.tasks[0], "test")} == {f"{s:02d}" for s in TEST}
    assert len(stream.tasks[0].test) == 3 * 3 * 2


@pytest.mark.usefixtures("core50")
def test_core50_holds_out_sessions_not_frames(cut: Any) -> None:
    stream = cut("core50", holdout=0.25)
    assert stream.domain_names == ("s1", "s2", "s4", "s5", "s6", "s8")
    assert {name[2:4] for name in file_names(stream.tasks[0], "test")} == {"09", "11"}


def test_a_missing_session_or_a_strange_object_is_named(
    core50: Path, refused: Any, write: Any
) -> None:
    write(core50 / "s1" / "o51" / "C.png")
    assert "Expected o1 … o50" in refused("core50")
    shutil.rmtree(core50 / "s7")
    assert f"there is no {core50 / 's7'}" in refused("core50")


# Tiny-ImageNet. ----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["published", "rearranged"])
def test_tiny_imagenet_in_both_layouts(layout: str, root: Path, write: Any, cut: Any) -> None:
    folder = root / "tiny-imagenet-200"
    notes = []
    for row, wnid in enumerate(WNIDS):
        place = folder / "train" / wnid / ("images" if layout == "published" else "")
        for number in range(3):
            write(place / f"{wnid}_{number}.JPEG", 10 * row + number, 64, 64)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("boxes")
        place = folder / "val" / ("images" if layout == "published" else wnid)
        write(place / f"val_{row}.JPEG", 100 + row, 64, 64)
        notes.append(f"val_{row}.JPEG\t{wnid}\t0\t0\t9\t9")
    if layout == "published":
        (folder / "val" / "val_annotations.txt").write_text("\n".join(notes) + "\n")
    stream = cut("split-tiny-imagenet", tasks=3)
    assert stream.class_names == WNIDS
    for row, task in enumerate(stream.tasks):
        assert file_names(task, "train") == [f"{WNIDS[row]}_{n}.JPEG" for n in range(3)]
        assert file_names(task, "test") == [f"val_{row}.JPEG"]
    assert stream.fingerprint == EITHER_LAYOUT.setdefault("tiny", stream.fingerprint)


EITHER_LAYOUT: dict[str, str] = {}


# 5-Datasets. -------------------------------------------------------------------------------


def write_idx(folder: Path, name: str, array: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    (folder / name).write_bytes(header + array.tobytes())


def write_pack(path: Path, side: int, train: int = 2) -> None:
    content = {}
    for part, each in (("train", train), ("test", 1)):
        labels = np.repeat(np.arange(10), each)
        content[f"y_{part}"] = labels
        content[f"x_{part}"] = np.stack([np.full((side, side), 10 + c, np.uint8) for c in labels])
    np.savez(path, **content)


PACKS = {"svhn": 32, "mnist": 28, "cifar10": 32, "notmnist": 28, "fashion_mnist": 28}


def test_five_packs_in_the_stated_order(root: Path, cut: Any) -> None:
    for train, (name, side) in enumerate(PACKS.items(), start=1):
        write_pack(root / f"{name}_{train}x1.npz", side, train)
    write_pack(root / "cifar100_1x1.npz", 32)  # another set, not the pack of CIFAR-10
    stream = load_stream("5-datasets", StreamOptions(data_root=str(root)), 3)
    assert [len(t.train) for t in stream.tasks] == [10, 20, 30, 40, 50]
    assert [t.classes for t in stream.tasks] == [
        tuple(range(10 * i, 10 * i + 10)) for i in range(5)
    ]
    titles = [stream.class_names[10 * i] for i in range(5)]
    assert titles == ["SVHN 0", "MNIST 0", "CIFAR-10 0", "notMNIST 0", "Fashion-MNIST 0"]
    for task, side in zip(stream.tasks, PACKS.values(), strict=True):
        images = task.train.images[torch.arange(len(task.train))]
        assert {tuple(image.shape) for image in images} == {(3, side, side)}
        assert [int(image[1, 3, 3]) - 10 for image in images] == [
            label % 10 for label in task.train.labels.tolist()
        ]
    assert "notMNIST: notmnist_4x1.npz" in (stream.split or "")


def test_five_sets_from_their_published_files(
    root: Path, cut: Any, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sum_of(path: Path) -> str:
        return hashlib.md5(path.read_bytes()).hexdigest()

    svhn = {}
    for part, each in (("train", 2), ("test", 1)):
        labels = np.tile(np.arange(1, 11), each)  # 10 stands for the digit 0
        pixels = np.broadcast_to(labels.astype(np.uint8), (32, 32, 3, len(labels)))
        scipy.io.savemat(root / f"{part}_32x32.mat", {"X": pixels, "y": labels[:, None]})
        svhn[part] = ["", f"{part}_32x32.mat", sum_of(root / f"{part}_32x32.mat")]
    monkeypatch.setattr(datasets.SVHN, "split_list", svhn)
    for folder in ("MNIST", "FashionMNIST"):
        for part, each in (("train", 2), ("t10k", 1)):
            labels = np.tile(np.arange(10, dtype=np.uint8), each)
            pixels = np.broadcast_to(labels[:, None, None], (len(labels), 28, 28))
            write_idx(root / folder / "raw", f"{part}-images-idx3-ubyte", pixels.copy())
            write_idx(root / folder / "raw", f"{part}-labels-idx1-ubyte", labels)
    batches = root / "cifar-10-batches-py"
    train = write_pickle(batches / "data_batch_1", cifar_rows(10, 2, "labels"))
    test = write_pickle(batches / "test_batch", cifar_rows(10, 1, "labels"))
    meta = write_pickle(batches / "batches.meta", {"label_names": list("abcdefghij")})
    monkeypatch.setattr(datasets.CIFAR10, "train_list", [["data_batch_1", train]])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [["test_batch", test]])
    told = {"filename": "batches.meta", "key": "label_names", "md5": meta}
    monkeypatch.setattr(datasets.CIFAR10, "meta", told)
    for row, letter in enumerate("ABCDEFGHIJ"):
        for number in range(10):
            write(root / "notMNIST_small" / letter / f"{number}.png", 100 * row + number, 28, 28)
    (root / "notMNIST_small" / "A" / "broken.png").write_bytes(b"")

    stream = cut("5-datasets")
    counts = [(len(t.train), len(t.test)) for t in stream.tasks]
    letters = counts.pop(3)
    assert counts == [(20, 10)] * 4
    assert (sum(letters), letters[1]) in ((100, 10), (100, 9))  # the broken one may be a test image
    assert stream.class_names[20] == "CIFAR-10 a"
    assert any("1 of" in note and "broken.png (it is empty" in note for note in stream.notes)
    digits = stream.tasks[0].train
    shown = [int(image[0, 0, 0]) % 10 for image in digits.images[torch.arange(len(digits))]]
    assert shown == digits.labels.tolist()
    assert "notMNIST: toolkit-v1 90/10" in (stream.split or "")

    for part, numbers in (("Train", range(8)), ("Test", range(8, 10))):
        for letter in "ABCDEFGHIJ":
            for number in numbers:
                write(root / "notMNIST" / part / letter / f"{number}.png", number, 28, 28)
    again = cut("5-datasets")
    assert (len(again.tasks[3].train), len(again.tasks[3].test)) == (80, 20)
    assert "notMNIST: acl" in (again.split or "")


def test_five_sets_with_something_wrong(root: Path, refused: Any) -> None:
    write_pack(root / "svhn_1.npz", 32)
    assert "MNIST/raw" in refused("5-datasets")
    write_pack(root / "svhn_2.npz", 32)
    assert "Which one is meant" in refused("5-datasets")


def test_every_stream_is_listed() -> None:
    listed = available_streams()
    for name in (*SETS, "folders:DIR", "domains:DIR", "csv:FILE", "npz:FILE", "hf:NAME"):
        assert listed[name]
