"""CIFAR-100: the official files, read by torchvision after their checksums are verified."""

import json
from importlib.resources import files
from pathlib import Path

import torch
from torchvision import datasets

from hashprompt.data.arrays import coarse_source, to_tensor
from hashprompt.data.sets.base import DataSet, Remote, need
from hashprompt.data.settings import StreamOptions
from hashprompt.data.tables import ImageTable, Source
from hashprompt.errors import UserError

CIFAR100_FILE = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    size=169_001_437,
    gives="cifar-100-python",
)
CIFAR10_FILE = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    size=170_498_071,
    gives="cifar-10-batches-py",
)
LICENCE = "none stated; the authors ask to be cited"


def cifar_tables(
    kind: type[datasets.CIFAR10], root: Path
) -> tuple[ImageTable, ImageTable, tuple[str, ...]]:
    """Training and test images of CIFAR-10 or CIFAR-100, and the names of the classes."""
    names = [name for name, _ in (*kind.train_list, *kind.test_list)]
    need(root, *(f"{kind.base_folder}/{name}" for name in (*names, kind.meta["filename"])))
    try:  # torchvision compares the checksum of every file before it unpickles one
        parts = [kind(str(root), train=train) for train in (True, False)]
    except RuntimeError as error:
        raise UserError(
            f"The files in {root / kind.base_folder} are not the published ones (checksums differ) "
            "and are not opened. Remove the folder and fetch them again."
        ) from error
    train, test = (
        ImageTable(to_tensor(part.data, kind.base_folder), torch.tensor(part.targets))
        for part in parts
    )
    return train, test, tuple(parts[0].classes)


def load_cifar100(root: Path, options: StreamOptions) -> Source:
    if options.labels == "coarse":
        return load_coarse(root, options)
    train, test, names = cifar_tables(datasets.CIFAR100, root)
    return Source("split-cifar100", train, test, names, tasks=10, split="official")


def load_coarse(root: Path, options: StreamOptions) -> Source:
    train, test, _ = cifar_tables(datasets.CIFAR100, root)
    told = json.loads((files("hashprompt.data.sets") / "cifar100_coarse.json").read_text())
    fine_to_coarse, names = torch.tensor(told["fine_to_coarse"]), tuple(told["names"])
    return coarse_source("cifar100-coarse", train, test, fine_to_coarse, names, "official")


SPLIT_CIFAR100 = DataSet(
    "split-cifar100",
    "CIFAR-100, 100 classes in 10 tasks (tasks=20 or 50 for the longer ones)",
    load_cifar100,
    (CIFAR100_FILE,),
    "cifar-100-python/{train,test,meta}",
    LICENCE,
    (50_000, 10_000),
    coarse=True,
)
CIFAR100_COARSE = DataSet(
    "cifar100-coarse",
    "CIFAR-100's 20 superclasses, domain-incremental: a fine class of each in 5 tasks",
    load_coarse,
    (CIFAR100_FILE,),
    SPLIT_CIFAR100.layout,
    LICENCE,
    (50_000, 10_000),
    coarse=True,
)
