"""A learning session, from photos to a version: one state machine for command line and server.

    new        `learning/session.json` is written, and the version before still answers
    fitted     a classifier on frozen features is committed as a version and answers
    committed  the last version of the session is there, with training or without it

`learn` starts a session, fits the frozen features, trains, and keeps the training unless held-out
photos got worse. The files show which stage a session has reached, so an interrupted one is
resumed by the same call. `drop` ends a session and goes back to the version before it.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator

from hashprompt.errors import UserError
from hashprompt.photos.inputs.names import shorten
from hashprompt.photos.store.schemas import FixedChoices, Positive
from hashprompt.photos.store.store import RECORD, Store, Version
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import read_json, write_json
from hashprompt.storage.schema import Schema, Values
from hashprompt.texts import visible

if TYPE_CHECKING:
    from hashprompt.engine.callbacks import Callback
    from hashprompt.photos.continual import ContinualClassifier
    from hashprompt.photos.evaluation import HeldOutPhotos
    from hashprompt.photos.inputs.photo_dataset import PhotoDataset
    from hashprompt.photos.store.config import ClassifierConfig
    from hashprompt.photos.training import PhotoTask

Effort = Literal["instant", "quick", "normal", "best"]
Unreadable = Literal["stop", "skip"]
ADVICE = (
    "Drop this unfinished session with discard (`hashprompt learn MODEL PHOTOS --discard`); "
    "committed versions are not touched."
)


@dataclass(frozen=True)
class LearnRequest:
    """What to learn: arguments of `ContinualClassifier.learn`."""

    photos: Any
    labels: Sequence[Any] | None = None
    test: Any = None
    effort: Effort = "normal"
    rename: Mapping[str, str] | None = None
    unreadable: Unreadable = "stop"
    forgets: str | None = None  # leave this class out, and learn the others from nothing

    @property
    def source(self) -> str | None:
        """Where the photos are; None if they came in memory."""
        return _absolute(self.photos)


class LearnSession(Schema):
    """`learning/session.json`: what decides the result of an unfinished session."""

    parent: Positive | None  # the version that it extends
    source: str | None  # path of the photos; None if they came in memory
    test: str | None
    effort: Effort
    rename: dict[str, str]
    unreadable: Unreadable
    header: Annotated[Values, AfterValidator(lambda v: FixedChoices.model_validate(v) and v)]
    training: Values
    fingerprint: str
    forgets: str | None = None  # a class that is left out; then all is learned from nothing
    replaces: Positive | None = None  # then: the version to which undo goes back

    @property
    def before(self) -> int | None:
        """The version that undo goes back to, and that stays if the session is dropped."""
        return self.parent if self.forgets is None else self.replaces

    def stage(self, store: Store) -> Literal["new", "fitted", "committed"]:
        info = {} if store.is_new else store.version().info
        if info.get("session") != self.fingerprint:
            return "new"
        is_last = not info["frozen_fit"] or not self.training["epochs"]
        return "committed" if is_last else "fitted"

    def owns(self, info: Mapping[str, Any]) -> bool:
        """Whether a version goes if the session is dropped: its own fit, or that of a session it
        replaced. Any other version is current because the user went there since.
        """
        return bool(info["frozen_fit"]) and info["parent"] == self.before

    def resumed(self, request: LearnRequest) -> LearnRequest:
        """The request that this session was started with."""
        if request.photos is None and self.source is None:
            raise UserError("The session learned photos from memory: call learn with them again.")
        photos = self.source if request.photos is None else request.photos
        same = {name: getattr(self, name) for name in ("effort", "rename", "unreadable", "forgets")}
        return replace(request, photos=photos, test=self.test or request.test, **same)


@dataclass(frozen=True)
class SessionResult:
    """The version that answers after a session, and its held-out photos with predictions."""

    version: Version
    held_out: "Sequence[HeldOutPhotos]" = ()
    training: str = ""  # why the version has no training, where some was planned
    finished_before: bool = False


def find(store: Store) -> LearnSession | None:
    """The unfinished session; one that was interrupted before it was written is none."""
    try:
        stored = read_json(inside(store.learning, RECORD), LearnSession, ADVICE)
    except FileNotFoundError:
        return None
    return LearnSession(**{k: v for k, v in stored.items() if k in LearnSession.model_fields})


# From photos to a version. -------------------------------------------------------------------


def learn(
    classifier: "ContinualClassifier",
    request: LearnRequest,
    resume: bool = False,
    discard: bool = False,
    quiet: bool = True,
    callbacks: "Sequence[Callback]" = (),
) -> SessionResult:
    """Run a new session, or resume the one that was interrupted."""
    store = classifier.store
    try:
        session = find(store)
    except UserError:
        if not discard:
            raise
        session = None  # a damaged one is dropped too
    if session is not None and session.stage(store) == "committed":
        store.drop_learning()  # an interruption came before this could be done
        is_same = session.source is not None and session.source == request.source
        if not discard and (resume or is_same):
            return SessionResult(store.version(), finished_before=True)
        session = None
    if resume:
        if session is None:
            return _committed_before(store, request.source)
        request = session.resumed(request)
    if request.photos is None:
        raise UserError("Give photos to learn: a folder of class folders, or images.")
    # A session to be dropped stays until here: the photos may turn out to be unusable.
    dataset, config, base = prepare(classifier, request, session, discard)
    session = _begin(classifier, request, dataset, config, base, None if discard else session)
    if not quiet:
        from hashprompt.photos.plan import plan_of
        from hashprompt.ui.terminal import Terminal

        plan = plan_of(store, dataset, config, session.training, base)
        Terminal(stderr=True).print(plan.text("Learning"))
    from hashprompt.photos.training import PhotoTask

    return run(PhotoTask(store, config, dataset, session, callbacks, quiet))


def run(task: "PhotoTask") -> SessionResult:
    """Fit, train, evaluate, commit: from the stage that the session has reached."""
    store, session = task.store, task.session
    fitted = store.version() if session.stage(store) != "new" else fit(task)
    if session.training["epochs"]:
        result = train(task, fitted)
    else:
        result = SessionResult(fitted, task.as_predicted_by(fitted))
    store.drop_learning()
    return result


def fit(task: "PhotoTask") -> Version:
    """Commit a classifier on frozen features."""
    training = task.session.training
    version = task.commit(task.learn({**training, "epochs": 0}))
    if training["epochs"]:
        task.report(f"Version {version.number} is usable now. Training follows.")
    return version


def train(task: "PhotoTask", fitted: Version) -> SessionResult:
    """Train, and commit the result unless held-out photos got worse."""
    from hashprompt.photos.evaluation import TrainingGain, leaves_no_room

    if leaves_no_room(fitted.info["accuracy"]):
        tested = sum(count for _, count in fitted.info["accuracy"].values())
        note = f"Training is skipped: all {tested} held-out photos are classified correctly."
        return SessionResult(fitted, task.as_predicted_by(fitted), note)
    trained = task.learn(task.session.training)
    gain = TrainingGain.between(task.store.photos(fitted), trained.held_out)
    if not gain.is_kept:
        note = (
            f"Training did not help: it fixed {gain.fixed} and broke {gain.broken} of "
            f"{gain.tested} held-out photos. Keeping the untrained version."
        )
        return SessionResult(fitted, task.as_predicted_by(fitted), note)
    trained.add_seconds(fitted.info)
    return SessionResult(task.commit(trained), trained.held_out)


def _committed_before(store: Store, source: str | None) -> SessionResult:
    """What to answer when there is nothing to resume."""
    none = f"There is no unfinished session in {store.folder}"
    if store.is_new:
        raise UserError(f"{none}.")
    version = store.version()
    if source and Path(source).name != version.info["source"]:
        raise UserError(f"{none}; its last one, of {version.info['source']}, is finished.")
    return SessionResult(version, finished_before=True)


# Before anything is written. -----------------------------------------------------------------


def prepare(
    classifier: "ContinualClassifier",
    request: LearnRequest,
    session: LearnSession | None,
    discard: bool = False,
) -> "tuple[PhotoDataset, ClassifierConfig, Version | None]":
    """Photos, choices and the version to extend; all that can fail on bad input.

    Args:
        session: the unfinished one.
        discard: whether it will be dropped.
    """
    store = classifier.store
    base = _base(store, request, session, discard)
    # The choices of an unfinished first session are made.
    begun = None if session is None or discard else session.header
    header = begun if store.is_new else store.header()
    if header is not None:
        config = classifier.config(header)
        return _dataset(store, request, base, config.short_side), config, base
    from hashprompt.photos.defaults import new_config

    dataset, config = new_config(
        classifier.backbone,
        classifier.options,
        classifier.seed,
        lambda short_side: _dataset(store, request, base, short_side),
    )
    return dataset, config, base


def _base(
    store: Store, request: LearnRequest, session: LearnSession | None, discard: bool
) -> Version | None:
    """The version to extend: never the frozen-feature fit of a session that is not finished."""
    if request.forgets is not None or store.is_new:
        return None
    current = store.version()
    if session is None or (discard and not session.owns(current.info)):
        return current
    return None if session.before is None else store.version(session.before)


def _dataset(
    store: Store, request: LearnRequest, base: Version | None, short_side: int
) -> "PhotoDataset":
    from hashprompt.photos.inputs.photo_dataset import build_dataset

    known = base.info["classes"] if base else []
    if request.forgets is not None:  # names mean what they meant, though all is learned again
        known = store.version().info["classes"]
    dataset = build_dataset(
        request.photos,
        request.labels,
        test=request.test,
        known=known,
        rename=request.rename,
        seen=store.photos(base),
        unreadable=request.unreadable,
        short_side=short_side,
        without=request.forgets,
    )
    if request.forgets is not None:
        pairs = zip(dataset.labels, dataset.parts, strict=True)
        kept = {request.forgets, *(label for label, part in pairs if part == "train")}
        if lost := [name for name in known if name not in kept]:
            raise UserError(
                f"{dataset.name} has no training photos of {len(lost)} other classes "
                f"({shorten(lost)}). Add photos of them, or forget them first."
            )
    return dataset


def _begin(
    classifier: "ContinualClassifier",
    request: LearnRequest,
    dataset: "PhotoDataset",
    config: "ClassifierConfig",
    base: Version | None,
    unfinished: LearnSession | None,
) -> LearnSession:
    """The unfinished session if it is this one; else a new one, written to disk."""
    from hashprompt.photos.defaults import choose_training

    store, parent = classifier.store, base.number if base else None
    rows = sorted(zip(dataset.digests, dataset.labels, dataset.parts, strict=True))
    others = [parent, request.effort, *filter(None, [request.forgets])]
    fingerprint = hashlib.sha256(json.dumps([rows, others]).encode()).hexdigest()
    classifier.use(config)
    if unfinished is not None:
        if unfinished.fingerprint == fingerprint:
            return unfinished
        raise UserError(
            f"An unfinished session with {unfinished.source or 'photos from memory'} is in "
            f"{store.folder}, and these photos or settings are not the same. Resume it first "
            "(resume=True, `--resume`) or drop it (discard=True, `--discard`)."
        )
    session = LearnSession(
        parent=parent,
        source=request.source,
        test=_absolute(request.test),
        effort=request.effort,
        rename=dict(request.rename or {}),
        unreadable=request.unreadable,
        header=config.header(),
        training=choose_training(dataset.training, request.effort, classifier.options),
        fingerprint=fingerprint,
        forgets=request.forgets,
        replaces=None if request.forgets is None else store.current(),
    )
    store.drop_learning()
    write_json(inside(store.learning, RECORD), session.model_dump())
    return session


def _absolute(source: Any) -> str | None:
    """Path of a file or folder; None for photos in memory."""
    return str(Path(source).expanduser().resolve()) if isinstance(source, str | Path) else None


# Sessions of the server, and of others. ------------------------------------------------------


def drop(store: Store, source: Path | None = None) -> str:
    """Drop the unfinished session; returns which version answers instead, if one went.

    Args:
        source: drop the session with this list of photos only, even if it is committed already.

    Raises:
        UserError: if another program uses the classifier, or the version before is damaged.
    """
    with store.lock("dropping a session"):
        try:
            session = find(store)
        except UserError:
            if source is not None:
                raise
            session = None  # a damaged one is dropped too
        current: dict[str, Any] = {} if store.is_new else store.version().info
        if source is None:
            goes = session is not None and bool(current) and session.owns(current)
        elif session is not None and session.source != str(source):
            return ""  # other photos are being learned since
        else:  # a version that was edited since stays
            goes = current.get("source") == source.stem and not current["edit"]
        before = current["parent"] if goes else None
        if before is not None:
            store.go_to(before)
        store.drop_learning()
    if before is not None:
        return f"The session is dropped: version {before} answers, as before."
    stays = f"The session was the first: version {current.get('number')} stays, as it was learned."
    return stays if goes else ""


def committed_version(store: Store, source: Path) -> int | None:
    """The version that a finished session with these photos has committed."""
    if store.is_new or find(store) is not None:
        return None
    made = [n for n in store.numbers() if store.version(n).info["source"] == source.stem]
    return max(made, default=None)


def blocking_session(store: Store, own: Collection[str]) -> str | None:
    """Name of the photos of an unfinished session that is in the way of any other.

    Args:
        own: photos of the server's own sessions, which it resumes itself.
    """
    try:
        session = find(store)
    except UserError:
        return "unknown photos"  # it is damaged, and in the way all the same
    if session is None or session.source in own or session.stage(store) == "committed":
        return None
    return "photos from memory" if session.source is None else visible(Path(session.source).name)
