"""CUB-200-2011: birds, with the official split, or that of the RevisitingCIL archive (LAMDA)."""

from pathlib import Path

from hashprompt.data.entries import Entry, Layout, Part, source_from
from hashprompt.data.folders import read_folders
from hashprompt.data.sets.base import DataSet, Remote, need
from hashprompt.data.settings import StreamOptions
from hashprompt.data.tables import Source
from hashprompt.errors import UserError

FOLDER, LAMDA_FOLDER = "CUB_200_2011", "cub"
TABLES = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")


def load_cub(root: Path, options: StreamOptions) -> Source:
    if options.split == "lamda":
        return load_cub_lamda(root, options)
    folder = root / FOLDER
    need(folder, *TABLES, "images")
    paths, labels, in_training, classes = (_table(folder / name) for name in TABLES)
    parts: dict[str, Part] = {"1": "train", "0": "test"}
    entries = []
    for image, path in paths.items():
        try:
            label, part = classes[labels[image]], parts[in_training[image]]
        except KeyError as error:
            raise UserError(
                f"{folder} is damaged: image {image} of images.txt has no entry in "
                f"{', '.join(TABLES[1:])}. Unpack the archive again."
            ) from error
        entries.append(Entry(folder / "images" / path, path, label, part))
    class_names = tuple(classes[str(number)] for number in range(1, len(classes) + 1))
    layout = Layout(class_names=class_names, split="official")
    return source_from("split-cub200", entries, layout, options.reading(upright=False))


def load_cub_lamda(root: Path, options: StreamOptions) -> Source:
    need(root, f"{LAMDA_FOLDER}/train", f"{LAMDA_FOLDER}/test")
    source = read_folders(root / LAMDA_FOLDER, "tasks", options.reading(upright=False))
    return Source(**{**vars(source), "name": "split-cub200-lamda", "split": "lamda"})


def _table(file: Path) -> dict[str, str]:
    """Lines of a number and a value."""
    lines = (line.split(maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines())
    return {words[0]: words[1].strip() for words in lines if len(words) == 2}


LICENCE = "images from the web, for non-commercial research and education"
SPLIT_CUB200 = DataSet(
    "split-cub200",
    "CUB-200-2011, 200 species of birds, 10 tasks, official split",
    load_cub,
    (
        Remote(
            "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            md5="97eceeb196236b17998738112f37df78",
            size=1_150_585_339,
            gives=FOLDER,
        ),
    ),
    f"{FOLDER}/images/<class>/*.jpg and {FOLDER}/{{{','.join(TABLES)}}}",
    LICENCE,
    (5_994, 5_794),
    ("official", "lamda"),
)
SPLIT_CUB200_LAMDA = DataSet(
    "split-cub200-lamda",
    "the same birds with the split of the RevisitingCIL archive, which you supply",
    load_cub_lamda,
    (),
    f"{LAMDA_FOLDER}/{{train,test}}/<class>/*.jpg, from the archive that the RevisitingCIL "
    "repository (github.com/zhoudw-zdw/RevisitingCIL) links to",
    LICENCE,
    (9_430, 2_358),
)
