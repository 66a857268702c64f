"""The private folder next to a classifier: jobs, uploads, unsure photos; for its owner only.

zoo-serving/jobs/ID/        job.json; photos/ and their list until the job ends
zoo-serving/uploads/ID/     uploads in progress; emptied when the server starts
zoo-serving/unsure/         photos of the review queue, if the user wants them stored
zoo-serving/keep-unsure     an empty file, if the user wants that
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hashprompt.storage.files import (
    Target,
    inside,
    make_private_folder,
    remove_file,
    remove_new,
    write_atomically,
)
from hashprompt.storage.lock import locked

JOBS, UPLOADS, UNSURE, SWITCH = "jobs", "uploads", "unsure", "keep-unsure"


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
        """Make the folder, and lock it for this server."""
        make_private_folder(self.folder)
        in_use = f"Another server uses {self.folder}. Stop it first, or start with --read-only."
        with locked(self.folder, lambda: in_use):
            remove_new(inside(self.folder, UPLOADS))
            for name in (JOBS, UPLOADS, UNSURE):
                make_private_folder(inside(self.folder, name))
            yield

    def job(self, name: str) -> Target:
        return inside(self.folder, JOBS, name)

    def job_names(self) -> list[str]:
        return sorted(os.listdir(inside(self.folder, JOBS)))

    def upload(self, name: str) -> Target:
        """A new folder for the upload of a request."""
        place = inside(self.folder, UPLOADS, name)
        make_private_folder(place)
        return place

    @property
    def unsure(self) -> Target:
        return inside(self.folder, UNSURE)

    @property
    def keeps_unsure(self) -> bool:
        return inside(self.folder, SWITCH).exists()

    def keep_unsure(self, on: bool) -> None:
        switch = inside(self.folder, SWITCH)
        write_atomically(switch, b"") if on else remove_file(switch)
