"""`hf:NAME`: a data set of the Hugging Face hub, through the optional package `datasets`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashprompt.data.dataset import ImageSource
from hashprompt.data.reading.entries import source_from
from hashprompt.data.reading.folders import Entry, Part
from hashprompt.data.reading.images import MAX_BYTES
from hashprompt.errors import UserError
from hashprompt.options.stream import ReadOptions
from hashprompt.storage.files import read_file

TEST_PARTS = ("test", "validation", "valid", "val")


@dataclass(frozen=True)
class EncodedRow:
    """An encoded image in a row of a table."""

    table: Any
    row: int
    column: str
    part: str

    def read_bytes(self) -> bytes:
        cell = self.table[self.row][self.column]
        if cell["bytes"] is not None:
            return cell["bytes"]
        return read_file(Path(cell["path"]), MAX_BYTES)

    def __str__(self) -> str:
        return f"row {self.row} of {self.part}"


def read_huggingface(
    name: str, reading: ReadOptions, label_column: str | None = None
) -> ImageSource:
    """Training and test images with the labels of a column of class names."""
    try:
        import datasets
    except ImportError as error:
        raise UserError("hf:NAME needs `datasets`: pip install 'hashprompt[hf]'") from error
    try:
        tables = datasets.load_dataset(name)
    except Exception as error:  # the hub, the network and the file readers raise many types
        reason = (str(error).strip().splitlines() or [repr(error)])[0]
        raise UserError(
            f"Could not load `{name}` from the hub: {reason}. Without a connection use "
            "folders:DIR, csv:FILE or npz:FILE."
        ) from error
    test = next((part for part in TEST_PARTS if part in tables), None)
    if "train" not in tables:
        raise UserError(f"`{name}` has the parts {', '.join(tables)}; expected train.")
    features = tables["train"].features
    image = _column(name, features, datasets.Image, None)
    label = _column(name, features, datasets.ClassLabel, label_column)
    classes = tuple(features[label].names)
    entries = []
    parts: dict[str, Part] = {"train": "train", test: "test"} if test else {"train": ""}
    for part, meaning in parts.items():
        table = tables[part].cast_column(image, datasets.Image(decode=False))
        entries += [
            Entry(EncodedRow(table, row, image, part), f"{part}/{row}", classes[number], meaning)
            for row, number in enumerate(table[label])
            if number >= 0  # hidden labels are -1
        ]
    note = f"{name}: images from the column `{image}`, labels from `{label}`."
    return source_from(
        name.rpartition("/")[2],
        entries,
        reading,
        split=f"hub ({test})",
        class_names=classes,
        notes=[note],
    )


def _column(name: str, features: Any, kind: type, chosen: str | None) -> str:
    fitting = [column for column, feature in features.items() if isinstance(feature, kind)]
    if chosen is not None:
        fitting = [column for column in fitting if column == chosen]
    elif "label" in fitting:
        fitting = ["label"]
    if not fitting:
        wanted = f"label_column={chosen}" if chosen else f"column of type {kind.__name__}"
        raise UserError(f"`{name}` has no {wanted}; its columns are {', '.join(features)}.")
    return fitting[0]
