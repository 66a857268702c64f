"""History, undo, reports; and classes: rename, merge, forget."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from hashprompt.errors import UserError
from hashprompt.photos import ContinualClassifier
from hashprompt.photos.inputs.names import check_new_name
from hashprompt.photos.report.changes import history_of, percent, undone_versions
from hashprompt.photos.results import Edited
from hashprompt.photos.store.store import Store
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.http.request_log import log
from hashprompt.serve.models import (
    ChangedOut,
    ClassesOut,
    ForgetIn,
    HistoryOut,
    MergeIn,
    RenameIn,
    UndoIn,
)
from hashprompt.serve.photo_archive import forget_photos, move_photos, moved_by_edit, moved_by_undo
from hashprompt.serve.service import Service, ServiceOf
from hashprompt.storage.files import inside, read_file
from hashprompt.texts import counted, visible

router = APIRouter(tags=["history"])
# A report is one file with its style and pictures inside, and nothing that runs.
REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; sandbox"
}


@router.get("/api/history", response_model=HistoryOut)
def history(service: ServiceOf) -> dict[str, Any]:
    """All versions, the oldest first."""
    rows = history_of(service.store)
    undone = undone_versions([row for row in rows if not row["damaged"]])
    versions = [
        _damaged(row) if row["damaged"] else {**_shown(row), "undone": row["version"] in undone}
        for row in rows
    ]
    return {"version": service.version(), "versions": versions}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    new, again = row["new_classes"], row["known_classes"]
    text = row["edit"] or "; ".join(
        [
            *([f"new: {_listed(new)}"] if new else []),
            *([f"more of: {_listed(again)}"] if again else []),
        ]
    )
    return {
        "number": row["version"],
        "when": row["created"],
        "kind": "edit" if row["edit"] else "look" if row["is_look"] else "learn",
        "text": visible(text or row["source"]),
        "classes": row["classes"],
        "photos": row["photos"],
        "accuracy": None if row["accuracy"] is None else row["accuracy"] / 100,
        "held_out": row["tested"],
        "seconds": row["seconds"],
    }


def _damaged(row: dict[str, Any]) -> dict[str, Any]:
    empty = {"classes": 0, "photos": 0, "accuracy": None, "held_out": 0, "seconds": 0.0}
    told = {"number": row["version"], "when": "", "kind": "damaged", "undone": False}
    return {**told, "text": "This version is damaged.", **empty}


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@router.post("/api/undo", response_model=ChangedOut)
def undo(body: UndoIn, service: ServiceOf) -> dict[str, Any]:
    """Back to the version before the last learn or edit, or to any other."""
    _refuse_while_learning(service)
    store, photos = service.store, service.settings.photos
    before = _class_of_photos(store) if photos else {}
    version = store.go_to(body.to)
    moved = moved_by_undo(photos, before, _class_of_photos(store)) if photos else {}
    known = counted(len(version.info["classes"]), "class", "classes")
    text = f"Version {version.number} answers now; it knows {known}."
    return {"version": version.number, "text": "\n".join([text, *_moved(moved)])}


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
    """The page of what a learn changed, with pictures of confused photos."""
    folder = service.settings.folder.resolve()
    if not 0 < version < 10**9:
        raise Refusal(404, "There is no such version.")
    file = inside(folder.parent, f"{folder.name}-reports", f"version-{version:04d}.html")
    try:
        content = read_file(file).decode(errors="replace")
    except FileNotFoundError:
        raise Refusal(404, "There is no report of this version.") from None
    return HTMLResponse(service.settings.for_clients(content), headers=REPORT_HEADERS)


# Classes. ------------------------------------------------------------------------------------


@router.get("/api/classes", response_model=ClassesOut, tags=["classes"])
def classes(service: ServiceOf) -> dict[str, Any]:
    """What the version that answers knows."""
    if service.store.is_new:
        return {"classes": []}
    info = service.store.version().info
    rows = []
    for number, name in enumerate(info["classes"]):
        right, tested = info["accuracy"][name]
        accuracy = percent(right, tested)
        rows.append(
            {
                "name": name,
                "photos": sum(info["images"][name]),
                "accuracy": None if accuracy is None else accuracy / 100,
                "held_out": tested,
                "learns": [at + 1 for at, batch in enumerate(info["batches"]) if number in batch],
            }
        )
    return {"classes": rows}


@router.post("/api/classes/rename", response_model=ChangedOut, tags=["classes"])
def rename(body: RenameIn, service: ServiceOf) -> dict[str, Any]:
    """Give a class another name."""
    old, new = body.old, body.new

    def edit(classifier: ContinualClassifier, moved: Mapping[str, str]) -> Edited:
        return classifier.rename(old, new, moved)

    return _edited(service, [old], new, edit)


@router.post("/api/classes/merge", response_model=ChangedOut, tags=["classes"])
def merge(body: MergeIn, service: ServiceOf) -> dict[str, Any]:
    """Make one class of several."""
    merged, into = body.classes, body.into
    return _edited(service, merged, into, lambda own, moved: own.merge(merged, into, True, moved))


@router.post("/api/classes/forget", response_model=ChangedOut, tags=["classes"])
def forget(body: ForgetIn, service: ServiceOf) -> dict[str, Any]:
    """Know a class no longer; the text says what stays of it."""
    return _edited(service, [body.name], None, lambda own, _: own.forget(body.name, True))


def _edited(
    service: Service,
    classes: Sequence[str],
    into: str | None,
    edit: Callable[[ContinualClassifier, Mapping[str, str]], Edited],
) -> dict[str, Any]:
    """Carry out an edit; photos that were kept follow it.

    Args:
        into: the name that the classes get; None if they are forgotten.
        edit: is told where held-out photos will lie.
    """
    _refuse_while_learning(service)
    service.refuse_unfinished()
    settings, photos = service.settings, service.settings.photos
    moved = moved_by_edit(photos, classes, check_new_name(into, [])) if photos and into else {}
    # One of its own: what answers meanwhile must not be touched.
    done = edit(ContinualClassifier.load(settings.folder, settings.backbone), moved)
    gone = [forget_photos(photos, name) for name in classes] if photos and into is None else []
    return {"version": done.version, "text": "\n".join([done.text(), *gone, *_moved(moved)])}


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
        raise Refusal(409, "A learn is running or waiting. Wait until it is done, or cancel it.")
    if service.store.is_new:
        raise UserError("It has learned nothing yet: teach it first.")
