"""Photos behave alike in memory and on disk, and say where they are."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hashprompt.data.dataset import ImageTable, concatenate
from hashprompt.data.reading.image_stores import (
    DecodedImages,
    EncodedImages,
    Prefetch,
    open_photos,
)
from hashprompt.data.reading.images import read_image
from hashprompt.errors import UserError
from hashprompt.options.stream import ReadOptions

SIZES = [(12, 10), (7, 9), (12, 10), (30, 4), (5, 5)]


@pytest.fixture
def files(tmp_path: Path, write: Any) -> list[Path]:
    return [
        write(tmp_path / f"{i}.png", i, width, height) for i, (width, height) in enumerate(SIZES)
    ]


@pytest.mark.parametrize(("memory_gb", "store"), [(1.0, DecodedImages), (0.0, EncodedImages)])
def test_a_batch_holds_the_images_of_its_rows(
    memory_gb: float, store: type, files: list[Path]
) -> None:
    photos, kept, (note,) = open_photos(files, ReadOptions(memory_gb=memory_gb))
    assert isinstance(photos.store, store)
    assert kept == [0, 1, 2, 3, 4]
    assert ("kept decoded in memory" in note) is (store is DecodedImages)
    assert ("memory_gb=0: they are decoded for every batch" in note) is (store is EncodedImages)
    batch = photos[torch.tensor([3, 0, 3])]
    for image, row in zip(batch, (3, 0, 3), strict=True):
        assert torch.equal(image, read_image(files[row]))
    part = photos.select(torch.tensor([True, False, False, True, False]))
    assert len(part) == 2
    assert torch.equal(part[torch.tensor([1])][0], read_image(files[3]))
    assert part.names() == [str(files[0]), str(files[3])]
    assert part.sizes() == [(10, 12), (4, 30)]


@pytest.mark.parametrize("memory_gb", [1.0, 0.0])
def test_the_content_hash_knows_content_and_order(
    memory_gb: float, files: list[Path], write: Any
) -> None:
    reading = ReadOptions(memory_gb=memory_gb)
    photos = open_photos(files, reading)[0]
    before = photos.content_hash()
    assert open_photos(files, reading)[0].content_hash() == before
    assert photos.select(torch.tensor([1, 0, 2, 3, 4])).content_hash() != before
    write(files[2], 99)
    assert open_photos(files, reading)[0].content_hash() != before


@pytest.mark.parametrize("memory_gb", [1.0, 0.0])
def test_batches_come_in_any_order_from_ahead(memory_gb: float, files: list[Path]) -> None:
    photos = open_photos(files, ReadOptions(memory_gb=memory_gb))[0]
    rows = [torch.tensor([4, 2]), torch.tensor([0]), torch.tensor([1, 3])]
    ahead = Prefetch(photos, rows)
    for number in (1, 2, 0, 2, 0, 1):  # as after a resume, in the next epoch, and leaping
        expected = [read_image(files[row]) for row in rows[number].tolist()]
        found = ahead[number]
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_tables_of_one_source_are_joined_again(files: list[Path]) -> None:
    photos = open_photos(files, ReadOptions())[0]
    table = ImageTable(photos, torch.arange(5))
    joined = concatenate([table.select(torch.tensor([3, 1])), table.select(torch.tensor([0]))])
    assert joined.labels.tolist() == [3, 1, 0]
    images = joined.images[torch.arange(3)]
    assert torch.equal(images[0], read_image(files[3]))
    assert torch.equal(images[2], read_image(files[0]))


@pytest.mark.parametrize("memory_gb", [1.0, 0.0])
def test_unreadable_images_stop_or_are_counted(memory_gb: float, files: list[Path]) -> None:
    files[1].write_bytes(b"")
    files[3].write_bytes(files[3].read_bytes()[:80])  # a header, and not much more
    if memory_gb:
        with pytest.raises(
            UserError, match=r"2 of 5 images cannot be read: .*1\.png \(it is empty"
        ):
            open_photos(files, ReadOptions(memory_gb=memory_gb))
    reading = ReadOptions(memory_gb=memory_gb, unreadable="skip")
    photos, kept, notes = open_photos(files, reading)
    assert kept == [0, 2, 4]
    assert "2 of 5 images cannot be read" in notes[1]
    assert notes[1].endswith("They are left out.")
    for row, image in zip(kept, photos[torch.arange(3)], strict=True):
        assert torch.equal(image, read_image(files[row]))


def test_on_disk_an_empty_file_is_found_before_the_run(files: list[Path]) -> None:
    files[1].write_bytes(b"")
    with pytest.raises(UserError, match=r"1 of 5 images cannot be read.*unreadable=skip"):
        open_photos(files, ReadOptions(memory_gb=0))
