"""Sort a folder of photos into folders of classes, or into clusters without any classifier."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hashprompt.data.reading.folders import images_below
from hashprompt.data.reading.images import SUFFIXES, UnreadableImage, read_image
from hashprompt.errors import UserError
from hashprompt.photos.answers import Answer, Answering, check_arguments
from hashprompt.photos.inputs.predict_inputs import InputImage, read_inputs
from hashprompt.photos.sorting.clusters import MAX_SAMPLE, Clusters
from hashprompt.photos.sorting.journal import (
    Decision,
    Present,
    SortFolder,
    decode_feature,
    encode_feature,
    folder_names,
)
from hashprompt.photos.store.store import HEADER
from hashprompt.storage.files import inside, write_atomically
from hashprompt.storage.lock import locked
from hashprompt.texts import counted, visible
from hashprompt.ui.progress import photo_bar

if TYPE_CHECKING:
    from hashprompt.photos.continual import ContinualClassifier

AT_ONCE = 256  # photos whose names and answers are in memory
BATCH = 32
ON_SHEET = 30  # photos that a contact sheet shows
SHEET_SIDE = 192  # pixels to which they are reduced when they are read
MAX_ERRORS = 5  # that a result names
Model = Callable[[], Answering]  # opened once there is a photo to classify


@dataclass(frozen=True)
class SortResult:
    """How many photos went where."""

    folder: Path
    classes: dict[str, int]  # by folder
    unsure: int
    clusters: dict[str, int]  # by folder
    unclustered: int  # unknown, and in no cluster
    errors: tuple[tuple[str, str], ...]  # the first of those that cannot be read, and why
    unreadable: int
    table: Path
    notes: tuple[str, ...] = ()
    there: int = 0  # before, and left where they are
    model: Path | None = None  # the classifier

    def text(self) -> str:
        clusters = counted(len(self.clusters), "cluster", "clusters")
        classes = counted(len(self.classes), "class", "classes")
        counts = {
            f"into {classes}": sum(self.classes.values()),
            "unsure": self.unsure,
            f"into {clusters}": sum(self.clusters.values()),
            "without a cluster": self.unclustered,
            "there already": self.there,
        }
        done = ", ".join(f"{number:,} {where}" for where, number in counts.items() if number)
        if done:
            lines = [f"Sorted into {self.folder}: {done}."]
        elif self.unreadable:
            lines = [f"Nothing is sorted into {self.folder}."]
        else:
            kinds = ", ".join(SUFFIXES[:4])
            lines = [f"Nothing to sort: there is no photo ({kinds} …) in the inbox."]
        lines.append(f"All decisions: {self.table}")
        if self.clusters:
            lines.append(
                "Look at the contact sheet of each cluster (.jpg), rename its folder to a class, "
                f"correct mistakes, then: hashprompt learn {self.model or 'MODEL'} {self.folder}"
            )
        lines += [*self.notes, *(f"{name}: {reason}" for name, reason in self.errors)]
        if self.unreadable:
            left = counted(self.unreadable, "photo", "photos")
            lines.append(f"Left in the inbox, since it cannot be read: {left}.")
        return "\n".join(map(visible, lines))

    def to_dict(self) -> dict[str, Any]:
        model = None if self.model is None else str(self.model)
        paths = {"folder": str(self.folder), "table": str(self.table), "model": model}
        return {**self.__dict__, **paths}


class Sorter:
    """One sort, from an inbox to a target.

    Args:
        inbox: a folder of photos, and of folders of photos.
        into: the target, new or existing.
        sure: photos of a lower confidence are unsure.
        copy: make copies; else links, where the disk allows them.
        move: remove photos from the inbox once they are put.
    """

    def __init__(
        self, inbox: Path, into: Path, sure: float, copy: bool, move: bool, quiet: bool
    ) -> None:
        if not inbox.is_dir():
            raise UserError(f"{inbox} is not a folder. Give a folder of photos to sort.")
        if into.exists() and not into.is_dir():
            raise UserError(f"{into} is a file. Give a folder to sort into, new or existing.")
        if not 0 <= sure <= 1:
            raise UserError(f"sure={sure}: expected a share between 0 and 1.")
        source, target = inbox.resolve(), into.resolve()
        if source == target:
            raise UserError(f"{inbox} cannot be sorted into itself. Give another folder.")
        if source.is_relative_to(target) and not move:
            raise UserError(f"{inbox} lies in {into}: photos would be there twice. Use `--move`.")
        if model := next((f for f in (target, *target.parents) if (f / HEADER).exists()), None):
            raise UserError(f"{into} belongs to the classifier {model}. Give another folder.")
        self.inbox, self.into, self.sure, self.quiet = source, into, sure, quiet
        self.target = SortFolder(target, source, copy, move)

    def sort_by(self, classifier: "ContinualClassifier", threshold: float) -> SortResult:
        """Sort by the current version of a classifier.

        Args:
            threshold: photos whose `unknown` is higher are clustered.
        """
        check_arguments(threshold)
        store = classifier.store
        asked = {"model": str(store.folder.resolve()), "version": store.current()}

        def opened(version: int | None) -> tuple[list[str], Model]:
            return store.version(version).info["classes"], lambda: classifier.predictor(version)

        done = self.run(opened, {**asked, "backbone": None, "unknown_threshold": threshold})
        return replace(done, model=store.folder)

    def cluster(self, backbone: str | None) -> SortResult:
        """Sort without a classifier.

        Args:
            backbone: by name or file; by default what a first session would choose.
        """
        from hashprompt.photos.predictor import FrozenFeatures

        model = FrozenFeatures(backbone)
        weights = model.config.backbone.weights_sha256
        asked = {"model": None, "version": None, "backbone": weights, "unknown_threshold": 0.0}
        return self.run(lambda _: ([], lambda: model), asked)

    def run(
        self, opened: Callable[[int | None], tuple[list[str], Model]], asked: dict[str, Any]
    ) -> SortResult:
        """Sort, or resume a sort that was killed.

        Args:
            opened: classes and model of a version: the one that the sort began with.
            asked: model, version, backbone and threshold, as they are stored.
        """
        in_use = f"Another process is sorting into {self.into}. Try again later."
        with locked(self.target.folder, lambda: in_use):
            has_model = asked["model"] is not None
            prefix = "unknown" if has_model else "cluster"
            given = {
                **asked,
                "inbox": str(self.inbox),
                "copies": self.target.copy,
                "move": self.target.move,
                "sure": self.sure,
                "first_cluster": self._free_number(prefix),
                "table": self.target.free_table(),
            }
            begun = self.target.begin(given)
            classes, model = opened(begun["version"])
            others = ["unsure", "unknown" if has_model else "unclustered"]
            *named, unsure, unclustered = folder_names([*classes, *others])
            folders = dict(zip(classes, named, strict=True))
            self.target.leave_out([unsure, unclustered])
            present = self.target.resume()
            # Photos that have come since clusters were made are for the next sort.
            if not any(row.clustered for row in self.target.decisions()):
                self._decide(cache(model), asked["unknown_threshold"], folders, unsure, present)
            names = _cluster_names(prefix, begun["first_cluster"], named)
            clusters = self._cluster(names, unclustered)
            return self._finish(folders, unsure, unclustered, clusters, begun["table"])

    # The steps. ----------------------------------------------------------------------------

    def _decide(
        self, model: Model, threshold: float, folders: dict[str, str], unsure: str, present: Present
    ) -> None:
        """Classify all photos that are not there; put those that are known or unsure."""
        target = self.target
        done = {decision.photo for decision in target.decisions()}
        total = sum(1 for _ in self._photos())
        waiting = (name for name in self._photos() if name not in done)
        with photo_bar("sorting", total, self.quiet) as advance:
            advance(len(done))
            new = self._new(waiting, present, advance)
            while names := list(islice(new, AT_ONCE)):
                items = [InputImage(name, self.inbox / name) for name in names]
                inputs = read_inputs(items, model().short_side)
                rows = model().stream(inputs, threshold, BATCH, lambda a: bool(a.is_unknown))
                for answer, feature in rows:
                    target.settle(self._decision(answer, feature, folders, unsure))
                    advance(1)

    def _new(
        self, names: Iterable[str], present: Present, advance: Callable[[int], None]
    ) -> Iterator[str]:
        """Photos that are not in the target yet; where the others are is written down."""
        for name in names:
            place = present.find(self.inbox / name)
            if place is None:
                yield name
                continue
            folder, _, file = place.partition("/")
            self.target.settle(Decision(name, folder, file, there=True))
            advance(1)

    def _decision(
        self, answer: Answer, feature: np.ndarray | None, folders: dict[str, str], unsure: str
    ) -> Decision:
        if answer.error is not None:
            return Decision(answer.name, error=answer.error)
        label = "" if answer.label is None else str(answer.label)
        known = Decision(
            answer.name, None, "", label, answer.confidence if label else None, answer.unknown
        )
        if answer.is_unknown:
            assert feature is not None
            return replace(known, feature=encode_feature(feature))
        return replace(known, folder=folders[label] if answer.confidence >= self.sure else unsure)

    def _cluster(self, names: Iterator[str], unclustered: str) -> dict[str, int]:
        """Put unknown photos into clusters, with a sheet each; how many are in each.

        Args:
            names: of folders for clusters.
            unclustered: the folder of photos that are in none.
        """
        target = self.target
        total = sum(1 for _ in self._unknown())
        if not total:
            return {}
        chosen = set(np.linspace(0, total - 1, min(total, MAX_SAMPLE)).astype(int).tolist())
        sample = [decode_feature(d.feature) for i, d in enumerate(self._unknown()) if i in chosen]
        clusters = Clusters(np.stack(sample))
        folders = [*islice(names, len(clusters)), unclustered]  # of the label -1 too
        target.leave_out(folders)
        done = {decision.photo: decision for decision in target.decisions() if decision.clustered}
        files: dict[str, list[Path]] = {unclustered: []}
        waiting = self._unknown()
        while rows := list(islice(waiting, AT_ONCE)):
            labels = clusters.of(np.stack([decode_feature(row.feature) for row in rows]))
            for row, label in zip(rows, labels.tolist(), strict=True):
                put = done.get(row.photo)  # before a kill
                if put is None:
                    new = replace(row, folder=folders[label], feature="", clustered=True)
                    put = target.settle(new)
                files.setdefault(str(put.folder), []).append(target.folder / put.put)
        shown = sorted(files.keys() - {unclustered})
        for folder in shown:
            self._write_sheet(folder, files[folder])
        return {folder: len(files[folder]) for folder in (*shown, unclustered)}

    def _write_sheet(self, folder: str, files: list[Path]) -> None:
        from hashprompt.data.checking.contact_sheet import photo_sheet  # imports torch

        places = np.linspace(0, len(files) - 1, min(len(files), ON_SHEET)).astype(int)
        images = []
        for place in places.tolist():
            try:
                images.append(read_image(files[place], SHEET_SIDE))
            except UnreadableImage:  # the user took it away meanwhile
                continue
        sheet = photo_sheet(f"{folder}: {len(files):,} photos", images)
        write_atomically(inside(self.target.folder, f"{folder}.jpg"), sheet)

    def _finish(
        self,
        folders: dict[str, str],
        unsure: str,
        unclustered: str,
        clusters: dict[str, int],
        table: str,
    ) -> SortResult:
        decisions = self.target.decisions
        counts = Counter(d.folder for d in decisions() if not (d.there or d.clustered))
        errors = [(decision.photo, decision.error) for decision in decisions() if decision.error]
        notes = [
            f"The folder of the class {name} is called {folder}: learn it with --rename "
            f"'{folder}={name}'."
            for name, folder in folders.items()
            if name != folder and counts[folder]
        ]
        done = SortResult(
            self.into,
            {folder: counts[folder] for folder in folders.values() if counts[folder]},
            counts[unsure],
            {name: count for name, count in clusters.items() if name != unclustered},
            clusters.get(unclustered, 0),
            tuple(errors[:MAX_ERRORS]),
            len(errors),
            self.into / self.target.write_table(table).name,
            tuple(notes),
            sum(decision.there for decision in decisions()),
        )
        self.target.finish()
        return done

    # Photos. -------------------------------------------------------------------------------

    def _photos(self) -> Iterator[str]:
        """Paths of photos below the inbox, one folder after the other; the target is left out."""
        # Of a target around the inbox only the inbox itself is sorted.
        for path in images_below(self.inbox, left_out=self.target.folder):
            yield path.relative_to(self.inbox).as_posix()

    def _unknown(self) -> Iterator[Decision]:
        return (decision for decision in self.target.decisions() if decision.feature)

    def _free_number(self, prefix: str) -> int:
        """The first number from which no cluster is there yet."""
        paths = self.into.iterdir() if self.into.is_dir() else ()
        found = (re.fullmatch(rf"{prefix}-([0-9]{{1,9}})(\.jpg)?", path.name) for path in paths)
        return max((int(match[1]) for match in found if match), default=0) + 1


def _cluster_names(prefix: str, first: int, classes: Iterable[str]) -> Iterator[str]:
    """Names of folders for clusters, none of them that of a class."""
    taken = {name.casefold() for name in classes}
    names = (f"{prefix}-{number:02d}" for number in count(first))
    return (name for name in names if name not in taken)
