"""History, undo, reports; and classes: rename, merge, forget."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from hashprompt.errors import UserError
from hashprompt.photos import ContinualClassifier
from hashprompt.photos.inputs.names import check_new_name
from hashprompt.photos.report.changes import history_of, percent, undone_versions
from hashprompt.photos.results import Edited
from hashprompt.photos.store.store import Store
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.http.request_log import log
from hashprompt.serve.photo_archive import forget_photos, move_photos, moved_by_edit, moved_by_undo
from hashprompt.serve.routes.models import ChangedOut, Label, Strict
from hashprompt.serve.service import Service, ServiceOf
from hashprompt.storage.files import inside, read_file
from hashprompt.texts import counted, visible

router = APIRouter(tags=["history"])
# A report is one file with its style and pictures inside, and nothing that runs.
REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; sandbox"
}
Edit = Callable[[ContinualClassifier, Mapping[str, str]], Edited]


class VersionOut(BaseModel):
    number: int
    when: str = ""
    kind: Literal["learn", "look", "edit", "damaged"]
    text: str
    classes: int = 0
    photos: int = 0
    accuracy: float | None = None
    held_out: int = 0
    seconds: float = 0.0
    undone: bool = False


class HistoryOut(BaseModel):
    version: int
    versions: list[VersionOut]


class ClassOut(BaseModel):
    name: str
    photos: int
    accuracy: float | None
    held_out: int
    learns: list[int]


class ClassesOut(BaseModel):
    classes: list[ClassOut]


class UndoIn(Strict):
    to: Annotated[int, Field(ge=1, lt=10**9)] | None = None


class RenameIn(Strict):
    old: Label
    new: Label


class MergeIn(Strict):
    classes: Annotated[list[Label], Field(min_length=2, max_length=1000)]
    into: Label


class ForgetIn(Strict):
    name: Label


@router.get("/api/history")
def history(service: ServiceOf) -> HistoryOut:
    """All versions, the oldest first."""
    rows = history_of(service.store)
    undone = undone_versions([row for row in rows if not row["damaged"]])
    versions = [_version_out(row, row["version"] in undone) for row in rows]
    return HistoryOut(version=service.version(), versions=versions)


def _version_out(row: dict[str, Any], undone: bool) -> VersionOut:
    number = row["version"]
    if row["damaged"]:
        return VersionOut(number=number, kind="damaged", text="This version is damaged.")
    changes = {"new": row["new_classes"], "more of": row["known_classes"]}
    texts = [f"{what}: {_listed(names)}" for what, names in changes.items() if names]
    return VersionOut(
        number=number,
        when=row["created"],
        kind="edit" if row["edit"] else "look" if row["is_look"] else "learn",
        text=visible(row["edit"] or "; ".join(texts) or row["source"]),
        classes=row["classes"],
        photos=row["photos"],
        accuracy=None if row["accuracy"] is None else row["accuracy"] / 100,
        held_out=row["tested"],
        seconds=row["seconds"],
        undone=undone,
    )


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@router.post("/api/undo")
def undo(body: UndoIn, service: ServiceOf) -> ChangedOut:
    """Back to the version before the last session or edit, or to any other."""
    _refuse_while_learning(service)
    store, photos = service.store, service.settings.photos
    before = _class_of_photos(store) if photos else {}
    version = store.go_to(body.to)
    moved = moved_by_undo(photos, before, _class_of_photos(store)) if photos else {}
    known = counted(len(version.info["classes"]), "class", "classes")
    text = f"Version {version.number} answers now; it knows {known}."
    return ChangedOut(version=version.number, text="\n".join([text, *_moved(moved)]))


def _class_of_photos(store: Store) -> dict[str, str]:
    """By SHA-256; of a version that is damaged, which is what one goes back from, nothing."""
    try:
        version = store.version()
        names = version.info["classes"]
        return {digest: names[row[0]] for digest, row in store.photos(version).items()}
    except UserError:
        return {}


@router.get("/api/reports/{version}", response_class=HTMLResponse)
def report(version: int, service: ServiceOf) -> HTMLResponse:
    """The page of what a session changed, with pictures of confused photos."""
    folder = service.settings.folder.resolve()
    try:
        if not 0 < version < 10**9:
            raise FileNotFoundError
        file = inside(folder.parent, f"{folder.name}-reports", f"version-{version:04d}.html")
        content = read_file(file).decode(errors="replace")
    except FileNotFoundError:
        raise Refusal(404, "There is no report of this version.") from None
    return HTMLResponse(service.settings.for_clients(content), headers=REPORT_HEADERS)


# Classes. ------------------------------------------------------------------------------------


@router.get("/api/classes", tags=["classes"])
def classes(service: ServiceOf) -> ClassesOut:
    """Classes of the version that answers."""
    if service.store.is_new:
        return ClassesOut(classes=[])
    info = service.store.version().info
    rows = []
    for number, name in enumerate(info["classes"]):
        right, tested = info["accuracy"][name]
        accuracy = percent(right, tested)
        row = ClassOut(
            name=name,
            photos=sum(info["images"][name]),
            accuracy=None if accuracy is None else accuracy / 100,
            held_out=tested,
            learns=[at + 1 for at, batch in enumerate(info["batches"]) if number in batch],
        )
        rows.append(row)
    return ClassesOut(classes=rows)


@router.post("/api/classes/rename", tags=["classes"])
def rename(body: RenameIn, service: ServiceOf) -> ChangedOut:
    """Give a class another name."""
    old, new = body.old, body.new
    return _edited(service, [old], new, lambda own, moved: own.rename(old, new, moved))


@router.post("/api/classes/merge", tags=["classes"])
def merge(body: MergeIn, service: ServiceOf) -> ChangedOut:
    """Make one class of several."""
    merged, into = body.classes, body.into
    return _edited(service, merged, into, lambda own, moved: own.merge(merged, into, True, moved))


@router.post("/api/classes/forget", tags=["classes"])
def forget(body: ForgetIn, service: ServiceOf) -> ChangedOut:
    """Remove a class; the text says what cannot be removed."""
    return _edited(service, [body.name], None, lambda own, _: own.forget(body.name, True))


def _edited(service: Service, classes: Sequence[str], into: str | None, edit: Edit) -> ChangedOut:
    """Carry out an edit; photos that were kept follow it.

    Args:
        into: the name that the classes get; None if they are forgotten.
        edit: takes where held-out photos will lie.
    """
    _refuse_while_learning(service)
    service.refuse_unfinished()
    settings, photos = service.settings, service.settings.photos
    moved = moved_by_edit(photos, classes, check_new_name(into, [])) if photos and into else {}
    # Loaded anew: what answers meanwhile must not be touched.
    done = edit(ContinualClassifier.load(settings.folder, settings.backbone), moved)
    gone = [forget_photos(photos, name) for name in classes] if photos and into is None else []
    text = "\n".join([done.text(), *gone, *_moved(moved)])
    return ChangedOut(version=done.version, text=text)


def _moved(photos: Mapping[str, str]) -> list[str]:
    """Move kept photos; what to tell if that fails, for what it follows is done."""
    try:
        move_photos(photos)
    except UserError as error:
        log("kept photos stay", logging.WARNING, error=str(error))
        return ["Photos that were kept lie where they were: they could not be moved."]
    return []


def _refuse_while_learning(service: Service) -> None:
    if not service.jobs.are_settled():
        raise Refusal(409, "A session is running or waiting. Wait for its end, or cancel it.")
    if service.store.is_new:
        raise UserError("It has learned nothing yet: teach it first.")
