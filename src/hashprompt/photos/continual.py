"""A classifier that learns folders of photos as they arrive, and classifies pictures.

Importing this module, `history`, `undo` and `diff` do without torch; the rest is imported on use.
"""

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from hashprompt.errors import UserError
from hashprompt.photos import session
from hashprompt.photos.answers import Answer, raise_first, shaped_as
from hashprompt.photos.report.changes import changes_of, difference, history_of
from hashprompt.photos.results import EditResult, LearnResult
from hashprompt.photos.session import Effort, LearnRequest, SessionResult, Unreadable
from hashprompt.photos.store.edits import Edit, forget_edit, merge_edit, rename_edit
from hashprompt.photos.store.store import Store, Version

if TYPE_CHECKING:
    from hashprompt.engine.callbacks import Callback
    from hashprompt.photos.plan import LearnPlan
    from hashprompt.photos.predictor import Predictor
    from hashprompt.photos.sorting.sorter import SortResult
    from hashprompt.photos.store.config import ClassifierConfig


def _sorted_labels(info: Mapping[str, Any]) -> list[Any]:
    """The labels of a version, given its `version.json`."""
    names: list[str] = info["classes"]
    return sorted(map(int, names)) if info["integer_labels"] else sorted(names)


class ContinualClassifier:
    """A classifier in a folder that keeps learning.

    Args:
        folder: where its versions are kept, new or existing. None: a temporary one.
        backbone: a frozen ViT by name or file (`hashprompt backbones`); by default one on this
            machine, else one of the hub, else a toy. Fixed by the first session.
        seed: random seed.
        **options: any option of `averaged-prompt` or of a run, e.g. ``epochs=4``.

    >>> import numpy as np
    >>> from hashprompt import ContinualClassifier
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.integers(0, 60, (24, 32, 32, 3), dtype=np.uint8)
    >>> noise[12:, :, :, 0] += 180  # half of them reddish
    >>> toy = ContinualClassifier(backbone="nano")
    >>> result = toy.learn(noise, labels=["grey"] * 12 + ["red"] * 12, report=False, quiet=True)
    >>> toy.predict(noise[20]).label
    'red'
    """

    _estimator_type = "classifier"  # for scikit-learn before 1.6

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
        self.store = Store(Path(self._temporary.name if folder is None else folder).expanduser())
        self._config: ClassifierConfig | None = None
        self._predictor: Predictor | None = None  # of the current version
        self._loading = threading.Lock()
        if not self.store.is_new:
            self.store.header()  # a newer format, or damage, should show now

    @classmethod
    def load(cls, folder: str | Path, backbone: str | None = None) -> "ContinualClassifier":
        """An existing classifier, for example one that was exported elsewhere."""
        Store(Path(folder).expanduser()).header()  # a mistyped path is no new classifier
        return cls(folder, backbone)

    def config(self, header: dict[str, Any] | None = None) -> "ClassifierConfig":
        """Backbone and options, loaded once; or those that a header names, by default its own."""
        from hashprompt.photos.store.config import ClassifierConfig

        if self._config is None or header is not None:
            folder, header = self.store.folder, header or self.store.header()
            self._config = ClassifierConfig.stored(folder, header, self.backbone, self.options)
        return self._config

    def use(self, config: "ClassifierConfig") -> None:
        """Keep the choices of a first session, loaded."""
        self._config = config

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
        unreadable: Unreadable = "stop",
        quiet: bool = False,
        callbacks: "Sequence[Callback]" = (),
    ) -> LearnResult:
        """Learn photos: new classes, more of known ones, or both.

        A session first fits a classifier on frozen features, usable within seconds. It then trains
        a prompt, and keeps it unless held-out photos get worse. An interrupted session is resumed
        by the same call.

        Args:
            photos: a folder of class folders, a CSV file, a torch `Dataset`, `(images, labels)`, or
                images with `labels`.
            test: the same for testing; by default a fifth of every class is held out.
            effort: how long to train: `quick`, `normal`, `best`; `instant`: not at all.
            rename: class names to change, `{"Robin": "robin"}`.
            resume: resume the interrupted session.
            discard: drop the interrupted session and learn these photos instead.
            report: write a page with pictures of confusions next to the classifier's folder (True),
                into a folder of your choice, or not at all.
            unreadable: `skip` leaves out images that cannot be read.
            quiet: no progress.
            callbacks: are called with what happens.
        """
        request = LearnRequest(photos, labels, test, effort, rename, unreadable)
        with self.store.lock(f"learning {request.source or 'photos'}"):
            done = session.learn(self, request, resume, discard, quiet, callbacks)
            return self._result(done, report)

    def _result(self, done: SessionResult, report: bool | str | Path) -> LearnResult:
        changes, page = changes_of(self.store, done.version), None
        if report is not False and not done.finished_before:
            from hashprompt.photos.report.page import write_report

            page = write_report(self.store.folder.resolve(), changes, done.held_out, report)
        return LearnResult(done.version.number, changes, page, done.finished_before, done.training)

    def plan(
        self,
        photos: Any,
        labels: Sequence[Any] | None = None,
        test: Any = None,
        effort: Effort = "normal",
        rename: Mapping[str, str] | None = None,
        unreadable: Unreadable = "stop",
    ) -> "LearnPlan":
        """What `learn` would do and how long it would take; nothing is written."""
        from hashprompt.photos.defaults import choose_training
        from hashprompt.photos.plan import plan_of

        request = LearnRequest(photos, labels, test, effort, rename, unreadable)
        unfinished = session.find(self.store)
        if unfinished is not None and unfinished.stage(self.store) == "committed":
            unfinished = None
        dataset, config, base = session.prepare(self, request, unfinished)
        training = choose_training(dataset.training, effort, self.options)
        return plan_of(self.store, dataset, config, training, base)

    # Editing. ------------------------------------------------------------------------------

    def rename(self, old: str, new: str) -> EditResult:
        """Give a class another name, as a new version."""
        return self._edit(lambda classes: rename_edit(classes, old, new))

    def merge(self, classes: Sequence[str], into: str, quiet: bool = False) -> EditResult:
        """Make one class of several, as a new version. Their Gaussians stay next to each other."""
        return self._edit(lambda known: merge_edit(known, classes, into), quiet)

    def forget(
        self,
        name: str,
        quiet: bool = False,
        retrain: Any = None,
        rename: Mapping[str, str] | None = None,
        before_commit: Callable[[], object] | None = None,
    ) -> EditResult:
        """Remove a class, as a new version, and report what cannot be removed.

        Its Gaussians, its rows and the records of its photos go. `EditResult.remains` names what
        was trained on the class together with others.

        Args:
            retrain: photos of all other classes, in the forms of `learn`. They are learned from
                nothing, so nothing of the class remains. `learn(resume=True)` resumes.
            rename: class names to change among these photos, as in `learn`.
            before_commit: called once the class can be removed; if it raises, the class stays.
        """
        if rename and retrain is None:
            raise UserError("rename belongs to photos: give them too (retrain=…, `--retrain`).")
        earlier = (
            "Earlier versions, which undo needs, still contain it, and reports may show its photos."
            " `export` writes this version only; then delete the old folder and reports."
        )
        with self._changing_classes() as before:  # refuses an unfinished session and a bad name
            edit = forget_edit(before.info["classes"], name)
        if retrain is not None:
            request = LearnRequest(retrain, rename=rename, forgets=name)
            with self._changing_classes() as before:
                done = session.learn(self, request, quiet=quiet)
                changes = changes_of(self.store, done.version, before)
            gone = f"Nothing of {name} remains: the version was learned from nothing, without it."
            return EditResult(done.version.number, changes, (gone, earlier))
        # First: afterwards, a session without classes is gone.
        trained = self.store.tensors(self.store.version()).get("average", ())
        result = self._edit(lambda _: edit, quiet, before_commit)
        remains = "Nothing of it remains: nothing was trained on it together with other classes."
        if len(trained):
            remains = (
                "What remains: the shared prompt and the head's rows of other classes were trained "
                "on it. To remove that too, learn the photos you still have from nothing "
                "(`hashprompt forget MODEL CLASS --retrain PHOTOS`)."
            )
        gone = f"Removed: the Gaussians of {name}, its rows and the records of its photos."
        return EditResult(result.version, result.changes, (gone, remains, earlier))

    def _edit(
        self,
        make: Callable[[list[str]], Edit],
        quiet: bool = True,
        before_commit: Callable[[], object] | None = None,
    ) -> EditResult:
        from hashprompt.photos.store.editor import apply_edit

        with self._changing_classes() as before:
            edit = make(before.info["classes"])
            version = apply_edit(self.store, self.config(), edit, quiet, before_commit)
            return EditResult(version.number, changes_of(self.store, version, before))

    @contextmanager
    def _changing_classes(self) -> Iterator[Version]:
        """The current version, while nobody else changes the classifier."""
        with self.store.lock("editing classes"):
            if session.find(self.store) is not None:
                raise UserError(
                    f"A session is unfinished in {self.store.folder}. Resume it first (`--resume`)."
                )
            yield self.store.version()

    # Predicting. ---------------------------------------------------------------------------

    def predict(
        self,
        what: Any,
        unknown_threshold: float = 0.95,
        version: int | None = None,
        batch_size: int = 32,
    ) -> Any:
        """Classify pictures.

        Args:
            what: a path, bytes, PIL image or array: returns an `Answer`. A folder, a pattern such
                as `other/*.jpg`, or a list: a list of answers, in which an item that cannot be read
                has an `error`. An array (N, H, W, 3) or an array of paths: an array of labels, as
                in scikit-learn.
            unknown_threshold: an answer whose `unknown` is higher is marked as unknown.
            version: use this version instead of the current one.
            batch_size: images at a time; it changes probabilities by rounding only (below 1e-6).
        """
        return shaped_as(*self.predictor(version).answers(what, unknown_threshold, batch_size))

    def predict_proba(self, what: Any, version: int | None = None) -> np.ndarray:
        """Calibrated probabilities (N, C), in the order of `classes_` of that version."""
        answers = self._every_answer(what, version)
        names = [str(label) for label in _sorted_labels(self.store.version(version).info)]
        return np.array([[answer.probabilities[c] for c in names] for answer in answers])

    def _every_answer(self, what: Any, version: int | None = None) -> list[Answer]:
        answers, _ = self.predictor(version).answers(what, 1.0, 32)
        raise_first(answers)
        return answers

    def predictor(self, number: int | None = None) -> "Predictor":
        """A version, loaded. A session elsewhere that has finished is noticed."""
        from hashprompt.photos.predictor import Predictor

        if self.store.is_new:
            raise UserError(f"{self.store.folder} has learned nothing yet. Teach it: learn(…).")
        wanted = self.store.current() if number is None else number
        with self._loading:
            predictor = self._predictor
            if predictor is None or predictor.info["number"] != wanted:
                predictor = Predictor(self.store, self.config(), wanted)
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
    ) -> "SortResult":
        """Sort a folder of photos into folders of classes. The same call resumes after a kill.

        Args:
            inbox: a folder of photos, and of folders of photos.
            into: where to put them, new or existing: a folder for each class, `unsure`, and for
                unknown photos a folder for each cluster, with a contact sheet.
            sure: photos of a lower confidence go to `unsure`.
            unknown_threshold: photos whose `unknown` is higher are clustered.
            copy: make copies; else links, where the disk allows them.
            move: remove photos from the inbox once they are put.
            quiet: no progress.
        """
        from hashprompt.photos.sorting.sorter import Sorter

        sorter = Sorter(Path(inbox).expanduser(), Path(into).expanduser(), sure, copy, move, quiet)
        return sorter.sort_by(self, unknown_threshold)

    # Versions. -----------------------------------------------------------------------------

    def history(self) -> list[dict[str, Any]]:
        """All versions: what was learned when, classes, photos, accuracy, size.

        A version that cannot be read has only `damaged`, the reason.
        """
        return history_of(self.store)

    def undo(self, to: int | None = None) -> int:
        """Back to the version before the last session, exactly, or to any other that is kept."""
        with self.store.lock("undoing"):
            return self.store.go_to(to).number

    def diff(self, old: int, new: int) -> dict[str, Any]:
        """What differs between two versions."""
        return difference(self.store, self.store.version(old), self.store.version(new))

    def export(
        self,
        target: str | Path,
        version: int | None = None,
        backbone: bool = True,
        format: Literal["torch", "onnx"] = "torch",
        int8: bool = False,
        test: str | Path | None = None,
    ) -> Path:
        """Write one version into a folder that opens on another machine, without paths of photos.

        Args:
            backbone: whether to copy the weights of the backbone too.
            format: `torch` is a classifier that can learn more; `onnx` is one graph from pixels to
                probabilities, for `OnnxClassifier` or any other program with onnxruntime.
            int8: of `onnx`: store large matrices as int8; the loss in accuracy is measured.
            test: of `onnx`: photos to compare both with, a folder of class folders or a CSV file;
                for int8 by default the held-out ones that are still in place.
        """
        if format == "onnx":
            from hashprompt.photos.onnx.export import export_onnx

            return export_onnx(self.store, Path(target), version, self.backbone, int8, test)
        if int8 or test is not None:
            raise UserError("int8 and test belong to format=onnx (`--format onnx`).")
        from hashprompt.backbone.catalogue import NANO
        from hashprompt.backbone.hub import weights_file

        extra: dict[str, Path] = {}
        name = self.config().backbone.name
        if backbone and name != NANO:  # which is embedded
            file = weights_file(name, may_download=False)[1]
            extra = {f"backbone{file.suffix}": file}
        return self.store.export(Path(target), version, extra)

    # scikit-learn's interface, without its base classes: importing them is slow. -------------

    @property
    def classes_(self) -> np.ndarray:
        """Labels in sorted order: the columns of `predict_proba`."""
        if self.store.is_new:
            return np.array([], dtype=str)
        return np.array(_sorted_labels(self.store.version().info))

    def partial_fit(self, X: Any, y: Sequence[Any], classes: Any = None) -> Self:
        """Learn images X with labels y, on top of the known classes."""
        self.learn(X, labels=y, report=False, quiet=True)
        return self

    def fit(self, X: Any, y: Sequence[Any]) -> Self:
        """Learn from nothing, as scikit-learn's loops expect."""
        if not self.store.is_new:
            if self.folder is not None:
                raise UserError(
                    f"fit starts from nothing; {self.folder} has learned: use partial_fit."
                )
            self.__init__(**self.get_params())  # type: ignore[misc]
        return self.partial_fit(X, y)

    def score(self, X: Any, y: Sequence[Any], sample_weight: Any = None) -> float:
        """Accuracy."""
        pairs = zip(self._every_answer(X), y, strict=True)
        right = [str(answer.label) == str(label) for answer, label in pairs]
        return float(np.average(right, weights=sample_weight))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        fixed = {name: getattr(self, name) for name in ("folder", "backbone", "seed")}
        return {**fixed, **self.options}

    def set_params(self, **params: Any) -> Self:
        self.__init__(**{**self.get_params(), **params})  # type: ignore[misc]
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, Tags, TargetTags  # from scikit-learn 1.6 on

        target = TargetTags(required=True)
        return Tags("classifier", target_tags=target, classifier_tags=ClassifierTags())

    def __sklearn_is_fitted__(self) -> bool:
        return not self.store.is_new

    def __repr__(self) -> str:
        defaults = {"folder": None, "backbone": None, "seed": 0}
        params = self.get_params().items()
        shown = (f"{k}={v!r}" for k, v in params if k not in defaults or v != defaults[k])
        return f"{type(self).__name__}({', '.join(shown)})"


def cluster_photos(
    inbox: str | Path,
    into: str | Path,
    backbone: str | None = None,
    copy: bool = False,
    move: bool = False,
    quiet: bool = False,
) -> "SortResult":
    """Sort a folder of photos into clusters of similar ones, without any classifier.

    The arguments are those of `ContinualClassifier.sort`; `backbone` as a new classifier takes it.
    """
    from hashprompt.photos.sorting.sorter import Sorter

    sorter = Sorter(Path(inbox).expanduser(), Path(into).expanduser(), 0.0, copy, move, quiet)
    return sorter.cluster(backbone)
