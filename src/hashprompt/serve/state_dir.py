"""The private folder beside a classifier: jobs, uploads, unsure photos. Nobody else may look in.

zoo-serving/jobs/ID/        job.json; photos/ and the list of them until the job ends
zoo-serving/uploads/ID/     what is being received; emptied when the server starts
zoo-serving/unsure/         the review queue, if the user wants unsure photos kept
zoo-serving/serving.json    whether they are
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hashprompt.storage.files import Target, inside, make_private_folder, remove_new
from hashprompt.storage.json_files import read_json, write_json
from hashprompt.storage.lock import locked
from hashprompt.storage.schema import Schema

JOBS, UPLOADS, UNSURE, SWITCHES = "jobs", "uploads", "unsure", "serving.json"


class Serving(Schema):
    """`serving.json`: what is switched on."""

    keep_unsure: bool


class PrivateFolder:
    """Where a server keeps its own files.

    Args:
        classifier: the folder of the classifier.
    """

    def __init__(self, classifier: Path) -> None:
        folder = classifier.resolve()
        self.folder = inside(folder.parent, f"{folder.name}-serving")

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folder, and be the only server that uses it."""
        make_private_folder(self.folder)
        in_use = f"Another server uses {self.folder}. Stop it first, or start with --read-only."
        with locked(self.folder, lambda: in_use):
            remove_new(inside(self.folder, UPLOADS))
            for name in (JOBS, UPLOADS, UNSURE):
                make_private_folder(inside(self.folder, name))
            yield

    def job(self, name: str) -> Target:
        return inside(self.folder, JOBS, name)

    def upload(self, name: str) -> Target:
        """A new folder for what a request brings."""
        place = inside(self.folder, UPLOADS, name)
        make_private_folder(place)
        return place

    @property
    def unsure(self) -> Target:
        return inside(self.folder, UNSURE)

    def job_names(self) -> list[str]:
        return sorted(os.listdir(inside(self.folder, JOBS)))

    @property
    def keeps_unsure(self) -> bool:
        try:
            return bool(read_json(self._switches, Serving, "Remove it.")["keep_unsure"])
        except FileNotFoundError:
            return False

    def keep_unsure(self, on: bool) -> None:
        write_json(self._switches, {"keep_unsure": on})

    @property
    def _switches(self) -> Target:
        return inside(self.folder, SWITCHES)
