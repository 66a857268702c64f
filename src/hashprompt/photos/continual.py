"""A classifier that learns folders of photos as they arrive, and names what is in pictures.

Importing this module, `history`, `undo` and `diff` do without torch; the rest is imported on use.
"""

import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hashprompt.errors import UserError
from hashprompt.photos.answering import as_asked, raise_first, refuse_bad_question
from hashprompt.photos.answers import Answer
from hashprompt.photos.learn_job import Effort, LearnJob, LearnRequest
from hashprompt.photos.report.changes import changes_of, difference, history_of
from hashprompt.photos.results import Edited, Learned
from hashprompt.photos.sklearn_api import SklearnManners, sorted_labels
from hashprompt.photos.store.edits import Edit, forget_edit, merge_edit, rename_edit
from hashprompt.photos.store.store import Store, Version
from hashprompt.storage.files import inside

if TYPE_CHECKING:
    from hashprompt.engine.callbacks import Callback
    from hashprompt.photos.defaults import LearnPlan
    from hashprompt.photos.evaluation import HeldOutPhotos
    from hashprompt.photos.inputs.predict_inputs import Kind
    from hashprompt.photos.planner import LearnPlanner
    from hashprompt.photos.predictor import Predictor
    from hashprompt.photos.sorting.sorter import Sorted
    from hashprompt.photos.trainer import LearnOutcome


class ContinualClassifier(SklearnManners):
    """A classifier in a folder, that keeps learning.

    Args:
        folder: where its versions are kept, new or existing. None: a temporary one.
        backbone: a frozen ViT by name or file (`hashprompt backbones`); by default what is on this
            machine, else what the hub has, else a toy. Fixed once something is learned.
        seed: of all chance.
        **options: any option of `averaged-prompt` or of a run, e.g. ``epochs=4``.

    >>> import numpy as np
    >>> from hashprompt import ContinualClassifier
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.integers(0, 60, (24, 32, 32, 3), dtype=np.uint8)
    >>> noise[12:, :, :, 0] += 180  # half of them reddish
    >>> toy = ContinualClassifier(backbone="nano")
    >>> learned = toy.learn(noise, labels=["grey"] * 12 + ["red"] * 12, report=False, quiet=True)
    >>> toy.predict(noise[20]).label
    'red'
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        backbone: str | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.folder, self.backbone, self.seed = folder, backbone, seed
        self.options = options
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="hashprompt-")
        self._store = Store(Path(self._temporary.name if folder is None else folder).expanduser())
        self._loaded_planner: LearnPlanner | None = None
        self._predictor: Predictor | None = None  # of the version that answers at the moment
        self._loading = threading.Lock()
        if not self._store.is_new:
            self._store.header()  # a newer format, or damage, should show now

    @classmethod
    def load(cls, folder: str | Path, backbone: str | None = None) -> "ContinualClassifier":
        """A classifier that is there already, for example one that was exported elsewhere."""
        Store(Path(folder).expanduser()).header()  # a mistyped path is no new classifier
        return cls(folder, backbone)

    # Learning. -----------------------------------------------------------------------------

    def learn(
        self,
        photos: Any = None,
        labels: Sequence[Any] | None = None,
        test: Any = None,
        effort: Effort = "normal",
        rename: Mapping[str, str] | None = None,
        resume: bool = False,
        discard: bool = False,
        report: bool | str | Path = True,
        unreadable: Literal["stop", "skip"] = "stop",
        quiet: bool = False,
        callbacks: "Sequence[Callback]" = (),
    ) -> Learned:
        """Learn photos: new classes, more of known ones, or both. Killed, it goes on later.

        In two steps: a look at the photos makes a version that answers after seconds; training
        prompts makes a better one, unless held-out photos tell that it is not better.

        Args:
            photos: a folder of class folders, a CSV file, a torch `Dataset`, `(images, labels)`, or
                images with `labels` beside them.
            test: the same for testing; without it a fifth of every class is held out.
            effort: `quick`, `normal` or `best`: how long to train. `instant`: not at all.
            rename: class names to change, `{"Robin": "robin"}`.
            resume: go on with the learn that was interrupted.
            discard: drop it, with its first look, and learn these photos instead.
            report: write the page with pictures of confusions beside the classifier's folder
                (True), into a folder of your choice, or not at all.
            unreadable: `skip` leaves out images that cannot be read.
            quiet: no progress.
            callbacks: are told what happens.
        """
        request = LearnRequest(photos, labels, test, effort, rename, unreadable)
        store, planner = self._store, self._planner()
        with store.lock(f"learning {request.source or 'photos'}"):
            # It stays until the new one begins: these photos may yet turn out to be unusable.
            dropped = planner.dropped() if discard else None
            unfinished = None if discard else planner.unfinished()
            if unfinished and planner.is_done(unfinished):
                store.drop_learning()
                if resume or (unfinished.source and unfinished.source == request.source):
                    return replace(self._learned(store.version(), [], False), finished_before=True)
                unfinished = None
            if resume:
                if unfinished is None:
                    return self._finished_already(request.source)
                request = request.resumed(unfinished)
            if request.photos is None:
                raise UserError("Say what to learn: a folder of class folders, or images.")
            base = planner.base(request, unfinished, dropped)
            outcome = self._train(request, unfinished, base, quiet, callbacks)
            learned = self._learned(outcome.version, outcome.held_out, report)
            return replace(learned, training=outcome.training)

    def _finished_already(self, source: str | None) -> Learned:
        """What to answer when there is nothing to resume."""
        store = self._store
        if store.is_new:
            raise UserError(f"There is no unfinished learn in {store.folder}.")
        version = store.version()
        if source and Path(source).name != version.info["source"]:
            raise UserError(
                f"There is no unfinished learn in {store.folder}; its last one, of "
                f"{version.info['source']}, is finished. To learn {source}, leave out resume."
            )
        return replace(self._learned(version, [], False), finished_before=True)

    def _train(
        self,
        request: LearnRequest,
        unfinished: LearnJob | None,
        base: Version | None,
        quiet: bool,
        callbacks: "Sequence[Callback]",
    ) -> "LearnOutcome":
        from hashprompt.photos.trainer import ClassifierTrainer

        planner = self._planner()
        dataset, config = planner.prepare(request, base)
        job = planner.begin(unfinished, dataset, config, request, base)
        if not quiet:
            from hashprompt.ui.terminal import Terminal

            plan = planner.plan(dataset, config, request.effort, base)
            Terminal(stderr=True).print(plan.text("Learning"))
        return ClassifierTrainer(self._store, config, dataset, job, callbacks).run(quiet)

    def plan(
        self,
        photos: Any,
        labels: Sequence[Any] | None = None,
        test: Any = None,
        effort: Effort = "normal",
        rename: Mapping[str, str] | None = None,
        unreadable: Literal["stop", "skip"] = "stop",
    ) -> "LearnPlan":
        """What `learn` would do and how long it would take; nothing is changed."""
        request = LearnRequest(photos, labels, test, effort, rename, unreadable)
        planner = self._planner()
        unfinished = planner.unfinished()
        if unfinished and planner.is_done(unfinished):
            unfinished = None
        base = planner.base(request, unfinished)
        return planner.plan(*planner.prepare(request, base), effort, base)

    def _planner(self) -> "LearnPlanner":
        from hashprompt.photos.planner import LearnPlanner

        if self._loaded_planner is None:
            self._loaded_planner = LearnPlanner(self._store, self.backbone, self.seed, self.options)
        return self._loaded_planner

    def _learned(
        self, version: Version, held_out: "Sequence[HeldOutPhotos]", report: bool | str | Path
    ) -> Learned:
        parent = version.info["parent"]
        before = None if parent is None else self._store.version(parent)
        changes = changes_of(self._store, before, version)
        page = None
        if report is not False:
            from hashprompt.photos.evaluation import confused_photos
            from hashprompt.photos.report.page import write_page

            folder = self._store.folder.resolve()
            pictures = confused_photos(held_out, version.info["classes"])
            name = f"version-{version.number:04d}.html"
            try:
                if report is True:  # beside the folder, and as foreign as it
                    file = inside(folder.parent, f"{folder.name}-reports", name)
                else:
                    file = inside(Path(report), name)
                page = write_page(changes, pictures, file, folder.name)
            except UserError as error:  # what was learned is safe
                warnings.warn(f"No report: {error}", stacklevel=3)
        return Learned(version.number, changes, page)

    # Editing. ------------------------------------------------------------------------------

    def rename(self, old: str, new: str, moved: Mapping[str, str] | None = None) -> Edited:
        """Give a class another name, as a new version.

        Args:
            moved: held-out photos that you move to the folder of the new name, old path to new.
        """
        return self._edit(lambda classes: rename_edit(classes, old, new), moved=moved)

    def merge(
        self,
        classes: Sequence[str],
        into: str,
        quiet: bool = False,
        moved: Mapping[str, str] | None = None,
    ) -> Edited:
        """Make one class of several, as a new version.

        Gaussians that they have of the same learn are pooled by their numbers of photos; those of
        different learns stay beside each other.

        Args:
            moved: as of `rename`.
        """
        return self._edit(lambda known: merge_edit(known, classes, into), quiet, moved)

    def forget(
        self,
        name: str,
        quiet: bool = False,
        retrain: Any = None,
        rename: Mapping[str, str] | None = None,
    ) -> Edited:
        """Know a class no longer, as a new version.

        Its Gaussians, its rows and the records of its photos go; answers are those of a classifier
        whose statistics never had it. `Edited.stays` tells what does not go.

        Args:
            retrain: photos of all other classes, in the forms of `learn`: they are learned from
                nothing, and so nothing stays. Killed, ``learn(resume=True)`` goes on.
            rename: class names to change among these photos, as in `learn`.
        """
        if rename and retrain is None:
            raise UserError("rename belongs to photos: give them too (retrain=…, `--retrain`).")
        earlier = (
            "Earlier versions know it still, so that undo works, and pages of what learns changed "
            "may show it. `export` takes this version alone; then delete the old folder and pages."
        )
        if retrain is not None:
            edited = self._learn_without(name, retrain, rename, quiet)
            gone = f"Nothing of {name} is in this version: it was learned from nothing, without it."
            return replace(edited, stays=(gone, earlier))
        gone = (
            f"Gone from this version: the Gaussians of {name}, its rows and the records of its "
            "photos."
        )
        forget_edit(self._store.version().info["classes"], name)  # refuses what cannot be forgotten
        trained = self._trained_beside()  # first: of a learn that goes nothing tells afterwards
        edited = self._edit(lambda classes: forget_edit(classes, name), quiet)
        return replace(edited, stays=(gone, trained, earlier))

    def _trained_beside(self) -> str:
        """What a version still has of a class that was forgotten."""
        from hashprompt.photos.store.editor import trained_parts

        parts = trained_parts(self._store, self._planner().config())
        if not parts:
            return "Nothing of it stays in this version: nothing was trained beside it."
        return (
            f"What stays: {' and '.join(parts)} were trained beside it. To be rid of that too, "
            "learn the photos you still have from nothing (`hashprompt forget MODEL CLASS "
            "--retrain PHOTOS`)."
        )

    def _edit(
        self,
        make: Callable[[list[str]], Edit],
        quiet: bool = True,
        moved: Mapping[str, str] | None = None,
    ) -> Edited:
        from hashprompt.photos.store.editor import apply_edit

        with self._changing_classes() as before:
            edit = make(before.info["classes"])
            version = apply_edit(self._store, self._planner().config(), edit, quiet, moved)
            return Edited(version.number, changes_of(self._store, before, version))

    def _learn_without(
        self, name: str, photos: Any, rename: Mapping[str, str] | None, quiet: bool
    ) -> Edited:
        """Learn photos from nothing, but for those of one class."""
        request = LearnRequest(photos, rename=rename, forgets=name)
        with self._changing_classes() as before:
            forget_edit(before.info["classes"], name)  # refuses what cannot be forgotten
            outcome = self._train(request, None, None, quiet, ())
            changes = changes_of(self._store, before, outcome.version)
            return Edited(outcome.version.number, changes)

    @contextmanager
    def _changing_classes(self) -> Iterator[Version]:
        """The current version, while nobody else changes the classifier."""
        store = self._store
        with store.lock("editing classes"):
            if LearnJob.read(store.learning) is not None:
                raise UserError(
                    f"A learn is unfinished in {store.folder}. Finish it first (resume=True, "
                    f"`hashprompt learn {store.folder} --resume`)."
                )
            yield store.version()

    # Predicting. ---------------------------------------------------------------------------

    def predict(
        self,
        what: Any,
        unknown_threshold: float = 0.95,
        version: int | None = None,
        batch_size: int = 32,
    ) -> Any:
        """What is in a picture.

        Args:
            what: a path, bytes, PIL image or array: an `Answer` comes back. A folder, a pattern
                such as `other/*.jpg`, or a list: a list of answers, in which an item that cannot be
                read has an `error`. An array (N, H, W, 3) or an array of paths: an array of labels,
                as scikit-learn wants it.
            unknown_threshold: an answer whose `unknown` is higher is marked as unknown.
            version: ask this version instead of the current one.
            batch_size: images at a time; it changes probabilities by rounding alone (below 1e-6).
        """
        answers, kind = self._answers(what, unknown_threshold, version, batch_size)
        return as_asked(answers, kind)

    def predict_proba(self, what: Any, version: int | None = None) -> np.ndarray:
        """Calibrated probabilities (N, C), in the order of `classes_` of that version."""
        answers = self._every_answer(what, version)
        names = [str(label) for label in sorted_labels(self._store.version(version).info)]
        return np.array([[answer.probabilities[c] for c in names] for answer in answers])

    def _every_answer(self, what: Any, version: int | None = None) -> list[Answer]:
        answers, _ = self._answers(what, 1.0, version, 32)
        raise_first(answers)
        return answers

    def _answers(
        self, what: Any, threshold: float, version: int | None, batch_size: int
    ) -> "tuple[list[Answer], Kind]":
        refuse_bad_question(threshold, batch_size)
        return self.predictor(version).ask(what, threshold, batch_size)

    def predictor(self, number: int | None = None) -> "Predictor":
        """The version asked for, loaded; a learn elsewhere that has finished is noticed."""
        from hashprompt.photos.predictor import Predictor

        if self._store.is_new:
            raise UserError(f"{self._store.folder} has learned nothing yet. Teach it: learn(…).")
        wanted = self._store.current() if number is None else number
        with self._loading:
            predictor = self._predictor
            if predictor is None or predictor.info["number"] != wanted:
                predictor = Predictor.load(self._store, self._planner().config(), wanted)
                if number is None:
                    self._predictor = predictor
        return predictor

    def sort(
        self,
        inbox: str | Path,
        into: str | Path,
        sure: float = 0.7,
        unknown_threshold: float = 0.95,
        copy: bool = False,
        move: bool = False,
        quiet: bool = False,
    ) -> "Sorted":
        """Sort a folder of photos into folders of classes; killed, the same call goes on.

        Args:
            inbox: a folder of photos, and of folders of photos.
            into: where to put them, new or existing: a folder for each class, `unsure`, and for
                unknown photos a folder for each group of likeness, with a sheet of its pictures.
            sure: photos of a lower confidence go to `unsure`.
            unknown_threshold: photos whose `unknown` is higher are grouped.
            copy: put copies; else links, where the disk knows them.
            move: remove photos from the inbox once they are put.
            quiet: no progress.
        """
        from hashprompt.photos.sorting.answer_source import KnownClasses
        from hashprompt.photos.sorting.sorter import Sorter

        refuse_bad_question(unknown_threshold)
        current = self._store.current()
        sorter = Sorter(Path(inbox).expanduser(), Path(into).expanduser(), sure, copy, move, quiet)

        def open_answering(version: int | None) -> KnownClasses:
            classes = self._store.version(version).info["classes"]
            return KnownClasses(classes, lambda: self.predictor(version), unknown_threshold)

        return sorter.run(open_answering, self._store.folder, current, unknown_threshold)

    # The past. -----------------------------------------------------------------------------

    def history(self) -> list[dict[str, Any]]:
        """All versions: what was learned when, classes, photos, accuracy, size.

        Of a version that cannot be read there is only `damaged`, which says why.
        """
        return history_of(self._store)

    def undo(self, to: int | None = None) -> int:
        """Back to the version before the last learn, exactly, or to any other that is kept."""
        with self._store.lock("undoing"):
            return self._store.go_to(to).number

    def diff(self, old: int, new: int) -> dict[str, Any]:
        """What differs between two versions."""
        return difference(self._store, self._store.version(old), self._store.version(new))

    def export(
        self,
        target: str | Path,
        version: int | None = None,
        backbone: bool = True,
        format: Literal["torch", "onnx"] = "torch",
        int8: bool = False,
        test: str | Path | None = None,
    ) -> Path:
        """One version as a folder that opens on another machine, without paths of photos.

        Args:
            backbone: whether to copy the weights of the backbone too.
            format: `torch` is a classifier that goes on learning; `onnx` one graph from pixels to
                probabilities, for `OnnxClassifier` or any other program with onnxruntime.
            int8: of `onnx`: the large matrices as int8; what it costs is measured.
            test: of `onnx`: photos to compare both with, a folder of class folders or a CSV file;
                for int8 by default the held-out ones that still lie where they were.
        """
        if format == "onnx":
            from hashprompt.photos.onnx.export import export_onnx

            return export_onnx(self._store, Path(target), version, self.backbone, int8, test)
        if int8 or test is not None:
            raise UserError("int8 and test belong to format=onnx (`--format onnx`).")
        from hashprompt.photos.store.config import weights_file

        extra: dict[str, Path] = {}
        if backbone:
            weights = weights_file(self._planner().config().backbone.name)
            if weights:
                extra[f"backbone{''.join(weights[1].suffixes[-1:])}"] = weights[1]
        return self._store.export(Path(target), version, extra)


def group_photos(
    inbox: str | Path,
    into: str | Path,
    backbone: str | None = None,
    copy: bool = False,
    move: bool = False,
    quiet: bool = False,
) -> "Sorted":
    """Sort a folder of photos into groups of likeness, without any classifier.

    The arguments are those of `ContinualClassifier.sort`; `backbone` as a new classifier takes it.
    """
    from hashprompt.photos.sorting.answer_source import NoClasses
    from hashprompt.photos.sorting.sorter import Sorter

    sorter = Sorter(Path(inbox).expanduser(), Path(into).expanduser(), 0.0, copy, move, quiet)
    answering = NoClasses(backbone)
    weights = answering.config.backbone.weights_sha256
    return sorter.run(lambda _: answering, None, None, 0.0, weights)
