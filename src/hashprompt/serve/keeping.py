"""Taught photos that the user wants to keep (`--photos`), in class folders."""

from contextlib import suppress
from pathlib import Path

from hashprompt.classifier.sort_journal import folder_names
from hashprompt.data.reading.images import SUFFIXES, file_digest
from hashprompt.serve.uploads import Lesson, TaughtPhoto
from hashprompt.storage.files import in_words, inside, place_file


def keep_photos(folder: Path, lesson: Lesson, names: dict[str, str]) -> dict[str, str]:
    """Put photos into the folders of their classes, named by their content.

    Args:
        folder: of all class folders.
        names: which class each label means.

    Returns:
        Where each photo of the lesson lies now.
    """
    paths = {}
    for photo, label in lesson.photos:
        source = inside(lesson.folder, *photo.path.split("/"))
        name = file_digest(source).hex()[:32] + _suffix(photo)
        target = inside(folder.resolve(), *folder_names([names[label]]), name)
        with in_words(target), suppress(FileExistsError):  # the same photo is there
            place_file(source, target)
        paths[photo.path] = str(target)
    return paths


def _suffix(photo: TaughtPhoto) -> str:
    """Of what the client called it, if that is one of ours; what it is, its content tells."""
    suffix = Path(photo.name).suffix.lower()
    return suffix if suffix in SUFFIXES else SUFFIXES[0]
