"""What is given to `learn` becomes labelled photos, or an error that says what to do."""

import hashlib
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset

from hashprompt.data.reading.images import read_image
from hashprompt.errors import UserError
from hashprompt.photos.inputs.names import SimilarNames
from hashprompt.photos.inputs.photo_dataset import PhotoDataset, build_dataset

NFC, NFD = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
Plant = Callable[..., Path]


def noise(seed: int, count: int = 1, height: int = 10, width: int = 12) -> np.ndarray:
    """(count, height, width, 3) uint8 like no other."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, height, width, 3), dtype=np.uint8)


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """`plant({"robin": [1, 2]})`: a folder of class folders; each number is another picture."""

    def make(classes: dict[str, list[int]], root: str = "photos") -> Path:
        for name, seeds in classes.items():
            folder = tmp_path / root / name
            folder.mkdir(parents=True, exist_ok=True)
            for seed in seeds:
                Image.fromarray(noise(seed)[0]).save(folder / f"{seed}.png")
        return tmp_path / root

    return make


def refused(*given: Any, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        build_dataset(*given, **options)
    return str(caught.value)


def counted(dataset: PhotoDataset) -> dict[str, tuple[int, int]]:
    """Training and test photos of each class."""
    pairs = list(zip(dataset.labels, dataset.parts, strict=True))
    return {
        name: (pairs.count((name, "train")), pairs.count((name, "test")))
        for name in sorted(set(dataset.labels))
    }


def memory_of(dataset: PhotoDataset) -> tuple[list[str], dict[str, list[Any]]]:
    """`known` and `seen` after a data set was learned."""
    known = sorted(set(dataset.labels))
    rows = zip(dataset.digests, dataset.labels, dataset.parts, dataset.paths, strict=True)
    return known, {digest: [known.index(name), part, at] for digest, name, part, at in rows}


# Folders and lists. ------------------------------------------------------------------------


def test_a_folder_of_class_folders(plant: Plant) -> None:
    folder = plant({"robin": list(range(10)), "wren": list(range(10, 15))})
    dataset = build_dataset(folder)
    assert dataset.name == "photos"
    assert counted(dataset) == {"robin": (8, 2), "wren": (4, 1)}
    assert not dataset.integer_labels
    for row, path in enumerate(dataset.paths):
        assert Path(path).is_absolute()
        assert dataset.digests[row] == hashlib.sha256(Path(path).read_bytes()).hexdigest()
        assert torch.equal(dataset.images[torch.tensor([row])][0], read_image(Path(path)))


def test_digests_and_parts_do_not_depend_on_where_photos_are_kept(plant: Plant) -> None:
    folder = plant({"robin": [1, 2, 3], "wren": [4, 5]})
    memory, disk = build_dataset(str(folder)), build_dataset(folder, memory_gb=0)
    assert not memory.images.on_disk
    assert disk.images.on_disk
    assert any("decoded for every batch" in note for note in disk.notes)
    for field in ("labels", "parts", "digests", "paths"):
        assert getattr(memory, field) == getattr(disk, field)
    assert build_dataset(folder, short_side=5).digests == memory.digests
    assert build_dataset(folder, short_side=5).images.sizes()[0] == (5, 6)


def test_photos_are_held_out_by_their_content(plant: Plant, tmp_path: Path) -> None:
    folder = plant({"robin": list(range(20)), "wren": list(range(20, 30))})
    parts = [dict(zip(d.digests, d.parts, strict=True)) for d in map(build_dataset, copies(folder))]
    assert parts[0] == parts[1] == parts[2]


def copies(folder: Path) -> list[Path]:
    """A folder, one with the same photos under other names, and a list of these."""
    other, file = folder.parent / "other", folder.parent / "list.csv"
    rows = ["path,label"]
    for photo in folder.glob("*/*"):
        copy = other / photo.parent.name / f"copy of {int(photo.stem) * 7 % 30}.png"
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photo, copy)
        rows.append(f"{copy},{photo.parent.name}")
    file.write_text("\n".join(rows))
    return [folder, other, file]


def test_parts_that_folders_give_are_kept(plant: Plant) -> None:
    dataset = build_dataset(plant({"train/robin": [1, 2, 3], "test/robin": [4]}))
    assert counted(dataset) == {"robin": (3, 1)}
    assert dataset.notes == ()


def test_a_class_may_be_called_train(plant: Plant) -> None:
    trains = plant({"train": [1, 2, 3], "test": [4, 5, 6], "bus": [7, 8, 9]})
    assert counted(build_dataset(trains)).keys() == {"train", "test", "bus"}


def test_a_picture_beside_the_classes_does_not_make_a_class_of_train(plant: Plant) -> None:
    photos = plant({"train/robin": [1, 2, 3], "test/robin": [4], "train": [5]})
    assert counted(build_dataset(photos)) == {"robin": (3, 1)}


def test_a_given_test_folder_ends_the_hold_out(plant: Plant) -> None:
    folder = plant({"robin": [1, 2, 3], "wren": [4, 5]})
    dataset = build_dataset(folder, test=plant({"robin": [6], "wren": [7, 8]}, "exam"))
    assert counted(dataset) == {"robin": (3, 1), "wren": (2, 2)}
    assert not any("held out" in note for note in dataset.notes)


def test_test_photos_of_classes_that_are_not_learned_are_left_out(plant: Plant) -> None:
    folder, exam = plant({"robin": [1, 2]}), plant({"robin": [3], "owl": [4], "kite": [5]}, "exam")
    dataset = build_dataset(folder, test=exam, known=["owl"])
    assert counted(dataset) == {"owl": (0, 1), "robin": (2, 1)}
    assert any("1 test photos are left out" in n and "kite" in n for n in dataset.notes)


def test_groups_of_class_folders_are_named(plant: Plant) -> None:
    said = refused(plant({"may/robin": [1], "june/robin": [2], "july/wren": [3]}))
    assert "3 folders of class folders (july, june, may)" in said
    assert "Learn them in turn" in said


def test_images_without_class_folders(plant: Plant) -> None:
    assert "no class folders" in refused(plant({"robin": [1, 2]}) / "robin")
    plant({"": [7]})
    dataset = build_dataset(plant({}))
    assert counted(dataset) == {"robin": (1, 1)}
    assert "Ignored: 1 image outside the class folders (7.png)." in dataset.notes


def test_a_list_in_a_csv_file(plant: Plant) -> None:
    folder = plant({"a": [1, 2, 3]})
    table = folder / "may.csv"
    table.write_text("path,label\n" + "".join(f"a/{i}.png, robin\n" for i in (1, 2, 3)))
    dataset = build_dataset(table)
    assert (dataset.name, counted(dataset)) == ("may", {"robin": (2, 1)})
    assert dataset.paths[0] == str(folder / "a" / "1.png")
    table.write_text("path,label,split\na/1.png,robin,train\na/2.png,robin,test\n")
    assert build_dataset(str(table)).parts == ("train", "test")


@pytest.mark.parametrize("column", ["task", "domain"])
def test_a_list_with_tasks_or_domains_is_learned_in_turn(column: str, plant: Plant) -> None:
    table = plant({"a": [1, 2]}) / "list.csv"
    table.write_text(f"path,label,{column}\na/1.png,robin,one\na/2.png,robin,two\n")
    said = refused(table)
    assert f"column `{column}` (one, two)" in said
    assert "Write a .csv file for each" in said


def test_paths_that_cannot_be_learned(tmp_path: Path, plant: Plant) -> None:
    assert "does not exist. Expected DIR/class/*.jpg" in refused(tmp_path / "nowhere")
    assert "does not exist" in refused(tmp_path / "nowhere.csv")
    assert "is not a folder" in refused(plant({"robin": [1]}) / "robin" / "1.png")
    (tmp_path / "empty").mkdir()
    assert "No images in" in refused(tmp_path / "empty")
    folder = plant({"robin": [1], "wren": []})
    assert f"No images in {folder / 'wren'}" in refused(folder)
    assert "address of the web" in refused("https://example.org/birds/")


def test_unreadable_files_stop_or_are_left_out(plant: Plant) -> None:
    folder = plant({"robin": [1, 2, 3], "wren": [4, 5]})
    for name in ("robin/bad.jpg", "wren/bad.jpg"):
        (folder / name).write_bytes(b"")
    assert "2 of 7 images cannot be read" in refused(folder)
    dataset = build_dataset(folder, unreadable="skip")
    assert counted(dataset) == {"robin": (2, 1), "wren": (1, 1)}
    assert any("They are left out." in note for note in dataset.notes)


# Arrays, lists of images, data sets. ---------------------------------------------------------


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "torch", "list", "pillow", "tuple"])
def test_images_in_memory(layout: str) -> None:
    arrays, labels = noise(0, 6), ["robin"] * 3 + ["wren"] * 3
    given: Any = {
        "NHWC": arrays,
        "NCHW": arrays.transpose(0, 3, 1, 2),
        "torch": torch.from_numpy(arrays).permute(0, 3, 1, 2),
        "list": list(arrays),
        "pillow": [Image.fromarray(array) for array in arrays],
        "tuple": arrays,
    }[layout]
    dataset = build_dataset((given, labels)) if layout == "tuple" else build_dataset(given, labels)
    assert counted(dataset) == {"robin": (2, 1), "wren": (2, 1)}
    assert dataset.labels == tuple(labels)
    assert dataset.paths == ("",) * 6
    for row, image in enumerate(dataset.images[torch.arange(6)]):
        pixels = arrays[row].transpose(2, 0, 1)
        assert torch.equal(image, torch.from_numpy(pixels.copy()))
        assert dataset.digests[row] == hashlib.sha256(b"(3, 10, 12)" + pixels.tobytes()).hexdigest()
    assert dataset.parts == build_dataset(arrays[::-1], labels[::-1]).parts[::-1]


def test_images_in_memory_need_not_fit_twice() -> None:
    arrays = noise(0, 4)
    dataset = build_dataset(arrays, list("aabb"), memory_gb=0)
    assert torch.equal(
        dataset.images[torch.tensor([2])][0], torch.from_numpy(arrays[2]).permute(2, 0, 1)
    )


def test_grey_arrays_get_three_channels() -> None:
    arrays = noise(0, 4)[..., 0]
    for given in (arrays, arrays[..., None], arrays[:, None]):
        image = build_dataset(given, list("aabb")).images[torch.tensor([1])][0]
        assert torch.equal(image, torch.from_numpy(arrays[1]).expand(3, 10, 12))


def test_a_list_of_paths(plant: Plant) -> None:
    folder = plant({"robin": [1, 2], "wren": [3, 4]})
    paths = sorted(folder.glob("*/*.png"))
    dataset = build_dataset([str(path) for path in paths], [path.parent.name for path in paths])
    assert dataset.paths == tuple(map(str, paths))
    assert dataset.digests == build_dataset(folder).digests
    same = build_dataset(np.array([str(path) for path in paths]), np.array(list("aabb")))
    assert same.digests == dataset.digests
    assert "cannot be read: gone.png" in refused(["gone.png"], ["robin"])


def test_mixed_image_modes_just_work(tmp_path: Path) -> None:
    modes = ["RGB", "L", "RGBA", "P", "CMYK", "1", "LA"]
    images = [Image.fromarray(noise(seed)[0]).convert(mode) for seed, mode in enumerate(modes)]
    images.append(Image.fromarray(noise(9)[0, :, :, 0].astype(np.uint16) * 257))
    folder = tmp_path / "photos" / "robin"
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        image.save(folder / f"{number}.{'tif' if image.mode == 'CMYK' else 'png'}")
    files, opened = (
        build_dataset(tmp_path / "photos"),
        build_dataset(images, ["robin"] * 8),
    )
    rows = torch.arange(8)
    for read, given in zip(files.images[rows], opened.images[rows], strict=True):
        assert read.shape == (3, 10, 12)
        assert torch.equal(read, given)
    assert torch.equal(read[0], torch.from_numpy(noise(9)[0, :, :, 0]))  # 16 bits


def test_a_pillow_image_is_turned_like_its_file(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    paths = [tmp_path / f"{i}.jpg" for i in range(2)]
    for seed, path in enumerate(paths):
        Image.fromarray(noise(seed)[0]).save(path, exif=turned)
    files = build_dataset(paths, ["a", "a"]).images[torch.arange(2)]
    opened = build_dataset([Image.open(path) for path in paths], ["a", "a"]).images[torch.arange(2)]
    assert files[0].shape == (3, 12, 10)
    assert torch.equal(files[0], opened[0])


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_whole_numbers_are_labels(kind: Any) -> None:
    dataset = build_dataset(noise(0, 4), kind([7, 7, 10, 10]))
    assert dataset.labels == ("7", "7", "10", "10")
    assert dataset.integer_labels
    assert not build_dataset(noise(0, 4), ["7", "7", "10", "10"]).integer_labels
    named = build_dataset(noise(0, 4), [7, 7, 10, 10], rename={"7": "robin"})
    assert not named.integer_labels


class Shapes(Dataset[Any]):
    """Pairs of an image and a label."""

    def __init__(self, images: Any, labels: Any, classes: Any = None) -> None:
        self.images, self.labels = images, labels
        if classes:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        return self.images[index], self.labels[index]


def test_a_dataset_with_and_without_names() -> None:
    pillow = [Image.fromarray(array) for array in noise(0, 4)]
    named = Shapes(pillow, [1, 0, 1, 0], ["robin", "wren"])
    dataset = build_dataset(named)
    assert (dataset.name, dataset.labels) == ("Shapes", ("wren", "robin", "wren", "robin"))
    assert not dataset.integer_labels
    part = build_dataset(Subset(named, [0, 2]))
    assert part.labels == ("wren", "wren")
    plain = build_dataset(Shapes(noise(0, 4), torch.tensor([1, 0, 1, 0])))
    assert plain.labels == ("1", "0", "1", "0")
    assert plain.integer_labels
    assert plain.digests == dataset.digests
    assert "names 1 classes, but holds the label 1" in refused(Shapes(pillow, [0, 1], ["robin"]))


def test_datasets_that_cannot_be_learned() -> None:
    floats = refused(Shapes(torch.rand(2, 3, 8, 8), [0, 1]))
    assert "float32; expected uint8" in floats
    assert "not scaled or normalised" in floats
    assert "Item 1 of Shapes cannot be read: IndexError" in refused(Shapes(noise(0, 1), [0, 1]))
    assert "Cannot learn from a generator" in refused(item for item in ())

    class Rows(Shapes):
        def __getitem__(self, index: int) -> Any:
            return {"image": self.images[index]}

    assert "Item 0 of Rows is a dict; expected (image, label)" in refused(Rows(noise(0, 1), [0]))


@pytest.mark.parametrize(
    ("images", "labels", "said"),
    [
        (noise(0, 3), ["a", "b"], "3 images, but 2 labels"),
        (noise(0, 0), [], "There are no images"),
        ([], [], "There are no images"),
        (noise(0, 2) / 255, ["a", "b"], "float64; expected uint8, 0…255. Give images as they are"),
        (noise(0, 2).astype(np.int64), ["a", "b"], "int64; expected uint8"),
        (noise(0, 1)[0, :, 0], ["a"], "The images have the shape (10, 3)"),
        (np.zeros((2, 5, 6, 7), np.uint8), ["a", "b"], "has the shape (5, 6, 7)"),
        (noise(0, 2), None, "come without labels"),
        (noise(0, 2), [0.0, np.nan], "Label 0.0; expected words or whole numbers"),
        (noise(0, 2), [np.nan, 1], "A missing value is no class"),
        (noise(0, 2), np.array([1, -1]), "Label -1; expected words or whole numbers from 0"),
        (noise(0, 2), np.array([True, False]), "Label True"),
        (noise(0, 2), [None, "a"], "Label None"),
        (noise(0, 2), ["a", 1], "Some labels are words and some are numbers, like 1"),
        (noise(0, 2), np.zeros((2, 1), int), "shape (2, 1); expected (N,)"),
        (noise(0, 2), "ab", "The labels are a str"),
        (noise(0, 2), ["a", "  "], "A class name is empty"),
        ([noise(0)[0], 3], ["a", "b"], "Image 1 is of the type int"),
        ("folder", ["a"], "a path has its own"),
        ({"a": 1}, ["a"], "The images are a dict"),
    ],
)
def test_images_and_labels_that_do_not_fit(images: Any, labels: Any, said: str) -> None:
    assert said in refused(images, labels)


def test_a_test_set_in_memory_for_photos_in_folders(plant: Plant) -> None:
    folder = plant({"robin": [1, 2], "wren": [3]})
    dataset = build_dataset(folder, test=(noise(9, 2), ["robin", "wren"]))
    assert counted(dataset) == {"robin": (2, 1), "wren": (1, 1)}
    last = dataset.images[torch.tensor([4])][0]
    assert torch.equal(last, torch.from_numpy(noise(9, 2)[1]).permute(2, 0, 1))


# The same photo again. -----------------------------------------------------------------------


def test_photos_learned_before_are_left_out(plant: Plant) -> None:
    known, seen = memory_of(build_dataset(plant({"robin": [1, 2, 3, 4], "wren": [5, 6]})))
    folder = plant({"robin": [7, 8], "owl": [9, 10]})
    dataset = build_dataset(folder, known=known, seen=seen)
    assert counted(dataset) == {"owl": (1, 1), "robin": (1, 1)}
    assert "6 of 10 photos were learned before and are left out." in dataset.notes
    known, seen = memory_of(build_dataset(folder))
    said = refused(folder, known=known, seen=seen)
    assert said.startswith("Nothing new to learn from photos. 10 of 10 photos were learned before")


def test_new_test_photos_alone_are_nothing_to_learn(plant: Plant) -> None:
    folder = plant({"robin": [1, 2]})
    known, seen = memory_of(build_dataset(folder))
    exam = plant({"robin": [3]}, "exam")
    assert "Nothing new to learn" in refused(folder, test=exam, known=known, seen=seen)


def test_a_photo_learned_under_another_label_is_reported(plant: Plant) -> None:
    known, seen = memory_of(build_dataset(plant({"robin": [1, 2, 3]})))
    dataset = build_dataset(plant({"wren": [1, 8, 9]}, "june"), known=known, seen=seen)
    assert counted(dataset) == {"wren": (1, 1)}
    assert any("wren/1.png (wren, was robin)" in note for note in dataset.notes)


def test_a_photo_under_two_labels_is_in_neither(plant: Plant) -> None:
    dataset = build_dataset(plant({"robin": [1, 2, 3], "wren": [1, 4, 5]}))
    assert counted(dataset) == {"robin": (1, 1), "wren": (1, 1)}
    assert not any(path.endswith("/1.png") for path in dataset.paths)
    note = next(note for note in dataset.notes if "several labels" in note)
    assert note.startswith("2 photos with several labels are left out")
    assert "robin/1.png (robin) = wren/1.png (wren)" in note
    arrays = noise(0, 3)[[0, 1, 2, 0]]
    assert "image 0 (a) = image 3 (b)" in "".join(build_dataset(arrays, ["a", "a", "b", "b"]).notes)


def test_a_class_without_a_clear_photo_is_not_learned(plant: Plant) -> None:
    dataset = build_dataset(plant({"robin": [1, 2, 3], "wren": [1]}))
    assert counted(dataset) == {"robin": (1, 1)}
    assert "No photo is left of 1 class, not learned: wren." in dataset.notes


def test_a_copy_in_one_class_counts_once(plant: Plant) -> None:
    folder = plant({"robin": [1, 2]})
    (folder / "robin" / "copy.png").write_bytes((folder / "robin" / "1.png").read_bytes())
    dataset = build_dataset(folder)
    assert counted(dataset) == {"robin": (1, 1)}
    assert "1 photos are copies of others in their class and count once." in dataset.notes


def test_a_test_photo_that_is_trained_on_is_not_tested(plant: Plant) -> None:
    dataset = build_dataset(plant({"train/robin": [1, 2], "test/robin": [2, 3]}))
    assert counted(dataset) == {"robin": (2, 1)}
    assert "1 test photos are training photos too and are left out of the test." in dataset.notes


def test_a_class_of_one_photo_is_learned_and_not_tested(plant: Plant) -> None:
    folder = plant({"robin": [1], "wren": [2, 3]})
    dataset = build_dataset(folder)
    assert counted(dataset) == {"robin": (1, 0), "wren": (1, 1)}
    assert any("No test photos for 1 classes" in n and "robin" in n for n in dataset.notes)
    known, seen = memory_of(build_dataset(plant({"robin": [7, 8]}, "before")))
    later = build_dataset(plant({"robin": [9]}, "later"), known=known, seen=seen)
    assert not any("No test photos" in note for note in later.notes)


# Names. ------------------------------------------------------------------------------------


def similar(*given: Any, **options: Any) -> SimilarNames:
    with pytest.raises(SimilarNames) as caught:
        build_dataset(*given, **options)
    return caught.value


def test_names_lose_blanks_and_get_one_unicode_form() -> None:
    dataset = build_dataset(noise(0, 4), [" robin ", " robin ", NFD, NFD])
    assert dataset.labels == ("robin", "robin", NFC, NFC)


@pytest.mark.parametrize(
    ("name", "known"), [("Robin", "robin"), (NFD, NFC), ("robin ", "robin"), ("STRASSE", "straße")]
)
def test_a_name_like_a_known_one_is_asked_about(name: str, known: str) -> None:
    asked = similar(noise(0, 2), [name, name], known=["wren", known])
    assert asked.pairs == [(name, known)]
    merged = build_dataset(noise(0, 2), [name, name], known=["wren", known], rename={name: known})
    assert merged.labels == (known, known)


def test_names_like_each_other_are_asked_about() -> None:
    labels = ["Robin", "robin", "ROBIN", "wren"]
    asked = similar(noise(0, 4), labels)
    assert asked.pairs == [("ROBIN", "Robin"), ("ROBIN", "robin"), ("Robin", "robin")]
    assert 'rename={"ROBIN": "Robin"} (--rename \'ROBIN=Robin\')' in str(asked)
    assert "(--rename 'ROBIN=ROBIN')" in str(asked)
    merged = build_dataset(noise(0, 4), labels, rename={"Robin": "robin", "ROBIN": "robin"})
    assert merged.labels == ("robin", "robin", "robin", "wren")
    apart = build_dataset(noise(0, 4), labels, rename={"Robin": "Robin", "ROBIN": "robin"})
    assert apart.labels == ("Robin", "robin", "robin", "wren")


def test_names_that_look_alike_show_their_letters() -> None:
    said = str(similar(noise(0, 2), [NFD, NFC]))
    assert "'cafe\\u0301' and 'caf\\xe9' differ only by blanks or Unicode form" in said


def test_a_class_that_was_told_apart_stays_so() -> None:
    known = ["robin", "Robin"]
    assert build_dataset(noise(0, 2), ["Robin", "robin"], known=known).labels == (
        "Robin",
        "robin",
    )


def test_renaming_to_a_name_like_a_known_one_is_asked_about() -> None:
    asked = similar(noise(0, 1), ["rouge"], known=["robin"], rename={"rouge": "Robin"})
    assert asked.pairs == [("Robin", "robin")]


def test_a_renamed_class_must_be_there() -> None:
    said = refused(noise(0, 1), ["robin"], rename={"robbin": "wren"})
    assert "Unknown class to rename `robbin`. Did you mean `robin`?" in said


def test_names_of_test_photos_are_settled_too() -> None:
    exam = (noise(1, 1), ["Robin"])
    assert similar(noise(0, 2), ["robin"] * 2, test=exam).pairs == [("Robin", "robin")]
    dataset = build_dataset(noise(0, 2), ["robin"] * 2, test=exam, rename={"Robin": "robin"})
    assert counted(dataset) == {"robin": (2, 1)}
