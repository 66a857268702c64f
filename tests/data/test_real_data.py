"""Real images, where a user has them: packs in HASHPROMPT_DATA."""

import os
import tarfile
from pathlib import Path

import pytest
import torch

from hashprompt.data.checking.checkup import check
from hashprompt.data.streams.stream import Stream, load_stream
from hashprompt.options.stream import StreamOptions

pytestmark = pytest.mark.real
REAL = Path(os.environ.get("HASHPROMPT_DATA", "/nowhere"))


def pack(name: str) -> Path:
    if not (REAL / name).is_file():
        pytest.skip(f"no {name} in $HASHPROMPT_DATA")
    return REAL / name


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CUB, Tiny-ImageNet and PACS, unpacked."""
    folder = tmp_path_factory.mktemp("real")
    for name in ("cub200_15x8_short144.tar", "tiny_imagenet_30x10.tar", "pacs_60x20_128.tar"):
        with tarfile.open(pack(name)) as archive:
            archive.extractall(folder, filter="data")
    return folder


def cut(name: str, root: Path = REAL, **options: object) -> Stream:
    return load_stream(name, StreamOptions(data_root=str(root), **options), 0)  # type: ignore[arg-type]


def counts(stream: Stream) -> list[tuple[int, int]]:
    return [(len(task.train), len(task.test)) for task in stream.tasks]


def test_cub_has_ten_tasks_of_twenty_species(root: Path) -> None:
    stream = cut("split-cub200", root, class_order="np1993")
    assert counts(stream) == [(300, 160)] * 10
    assert stream.class_order[:5] == (168, 136, 51, 9, 183)
    assert stream.class_names[0].startswith("169.")
    first = stream.tasks[0].train
    sizes = {min(image.shape[1:]) for image in first.images[torch.arange(len(first))]}
    assert sizes == {144}
    assert any("the full set has 5,994 and 5,794" in note for note in stream.notes)


def test_cub_from_disk_is_cub_from_memory(root: Path) -> None:
    kept, read = (cut("split-cub200", root, memory_gb=gb) for gb in (4, 0))
    assert kept.fingerprint == read.fingerprint
    rows = torch.tensor([0, 77, 299])
    batches = [stream.tasks[2].train.images[rows] for stream in (kept, read)]
    assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))


def test_tiny_imagenet_by_name_and_as_plain_folders(root: Path) -> None:
    named = cut("split-tiny-imagenet", root)
    plain = cut(f"folders:{root / 'tiny-imagenet-200'}")
    assert counts(named) == counts(plain) == [(600, 200)] * 10
    assert named.class_names == plain.class_names
    assert torch.equal(named.tasks[4].test.labels, plain.tasks[4].test.labels)


def test_pacs_has_four_domains_of_seven_classes(root: Path) -> None:
    stream = cut(f"domains:{root / 'PACS'}")
    assert stream.domain_names == ("art_painting", "cartoon", "photo", "sketch")
    assert counts(stream) == [(420, 140)] * 4
    assert len(stream.class_names) == 7


def test_five_packs_are_five_tasks() -> None:
    for name in ("cifar10_300x100", "mnist_500x100", "fashion_mnist_500x100", "svhn_300x100"):
        pack(f"{name}.npz")
    stream = cut("5-datasets")
    assert counts(stream) == [(3000, 1000), (5000, 1000), (3000, 1000), (5000, 1000), (5000, 1000)]
    assert len(stream.class_names) == 50


def test_cifar_by_fine_and_by_coarse_labels() -> None:
    name = f"npz:{pack('cifar100_100x30.npz')}"
    assert counts(cut(name)) == [(1000, 300)] * 10
    coarse = cut(name, labels="coarse")
    assert (coarse.scenario, counts(coarse)) == ("domain", [(2000, 600)] * 5)
    assert coarse.class_names[0] == "aquatic_mammals"


def test_the_doctor_finds_the_birds_in_order(root: Path) -> None:
    found = check("split-cub200", StreamOptions(data_root=str(root)))
    assert len(found.classes) == 200
    assert {row[1:] for row in found.classes} == {(15, 8)}
    assert not found.problems
