"""The names of streams, with a sentence each. Nothing heavy is imported here."""

from pathlib import Path

from hashprompt.data.sets.base import SETS
from hashprompt.errors import UserError
from hashprompt.options import unknown

DEMO = "glyphs-pairs"  # the default stream
EMBEDDED = {
    "glyphs-pairs": "two synthetic glyphs, the warm one is the label, class-incremental, 10 tasks",
    "glyphs": "one synthetic glyph, easy for frozen features, class-incremental, 10 tasks",
    "glyphs-domains": "synthetic glyphs in several styles, domain-incremental",
    "digits": "scikit-learn's handwritten digits, class-incremental, 5 tasks",
}
KINDS = {
    "folders:DIR": "your images: DIR/class/*.jpg or DIR/task/class/*.jpg, also in train/ and test/",
    "domains:DIR": "your images by domain: DIR/domain/class/*.jpg, also in train/ and test/",
    "csv:FILE": "your images in a list: path,label[,task|domain][,split]",
    "npz:FILE": "your arrays: x_train, y_train, x_test, y_test (uint8, NHWC or NHW)",
    "hf:NAME": "a data set of the Hugging Face hub (needs the package `datasets`)",
}
PREFIXES = tuple(kind.partition(":")[0] for kind in KINDS)
FILE_TYPES = (".npz", ".csv")  # files that need no prefix


def available_streams() -> dict[str, str]:
    """Streams by name, with a sentence each, for listings."""
    return EMBEDDED | {name: data.about for name, data in SETS.items()} | KINDS


def split_name(name: str) -> tuple[str, str] | None:
    """Prefix and path of a stream that the user brings; None for a known name.

    A known name takes precedence over a file of the same name: `./glyphs` and `npz:glyphs` are the
    file.

    Raises:
        UserError: for an unknown name.
    """
    if name in EMBEDDED or name in SETS:
        return None
    prefix, colon, place = name.partition(":")
    if colon and prefix in PREFIXES:
        return prefix, place
    if Path(name).suffix in FILE_TYPES:
        return Path(name).suffix[1:], name
    if Path(name).is_dir():
        raise UserError(f"{name} is a folder. Say how to read it: folders:{name} or domains:{name}")
    if Path(name).is_file():
        raise UserError(f"{name} is a file. Say how to read it: npz:{name} or csv:{name}")
    raise UserError(f"{unknown('stream', name, available_streams())} See `hashprompt streams`.")


def with_full_path(name: str) -> str:
    """The name of a stream with an absolute path, so that `resume` works from every folder."""
    found = split_name(name)
    if found is None or found[0] == "hf" or not Path(found[1]).exists():
        return name
    place = found[1]
    return f"{name.removesuffix(place)}{Path(place).resolve()}"
