"""Versions, undo and reports; and classes: rename, merge, forget."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse
from pydantic import Field

from hashprompt.errors import UserError
from hashprompt.photos import ContinualClassifier
from hashprompt.photos.inputs.names import check_new_name
from hashprompt.photos.report.changes import history_of, percent, undone_versions
from hashprompt.photos.results import EditResult
from hashprompt.photos.store.store import Store
from hashprompt.serve.http.monitoring import log
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.photo_archive import Moves, move_photos, moved_by_edit, moved_by_undo
from hashprompt.serve.predict_queue import NOTHING_LEARNED
from hashprompt.serve.routes.models import Label, Strict
from hashprompt.serve.service import Service, ServiceOf
from hashprompt.storage.files import inside, read_file

router = APIRouter(tags=["history"])
# A report is one file that contains its style and pictures, and nothing that runs.
REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; sandbox"
}


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
def history(service: ServiceOf) -> list[dict[str, Any]]:
    """All versions, oldest first, with the fields of hashprompt history --json, and undone."""
    rows = history_of(service.store)
    undone = undone_versions([row for row in rows if not row["damaged"]])
    return [
        {**row, "damaged": bool(row["damaged"]), "undone": row["version"] in undone} for row in rows
    ]


@router.post("/api/undo")
def undo(body: UndoIn, service: ServiceOf) -> dict[str, Any]:
    """Restore the version before the last session or edit, or any other version."""
    _refuse_while_learning(service)
    store, photos = service.store, service.settings.photos
    before = _class_of_photos(store) if photos else {}
    version = store.go_to(body.to)
    moved = moved_by_undo(photos, before, _class_of_photos(store)) if photos else {}
    text = f"Version {version.number} is in use now."
    return {"version": version.number, "text": "\n".join([text, *_moved(moved)])}


def _class_of_photos(store: Store) -> dict[str, str]:
    """Class of each photo of the current version, by SHA-256; empty if the version is damaged."""
    try:
        version = store.version()
        rows = store.photos(version)
        return {digest: version.info["classes"][row[0]] for digest, row in rows.items()}
    except UserError:
        return {}


@router.get("/api/reports/{version}", response_class=HTMLResponse)
def report(version: Annotated[int, Path(ge=1, lt=10**9)], service: ServiceOf) -> HTMLResponse:
    """The report of a session, with pictures of confused photos."""
    folder = service.settings.folder.resolve()
    try:
        file = inside(folder.parent, f"{folder.name}-reports", f"version-{version:04d}.html")
        content = read_file(file)
    except FileNotFoundError:
        raise Refusal(404, "There is no report of this version.") from None
    text = service.settings.for_clients(content.decode(errors="replace"))
    return HTMLResponse(text, headers=REPORT_HEADERS)


# Classes. ------------------------------------------------------------------------------------


@router.get("/api/classes", tags=["classes"])
def classes(service: ServiceOf) -> list[dict[str, Any]]:
    """Classes of the current version, with accuracies in percent."""
    if service.store.is_new:
        return []
    info = service.store.version().info
    return [
        {
            "name": name,
            "photos": sum(info["images"][name]),
            "accuracy": percent(*info["accuracy"][name]),
            "held_out": info["accuracy"][name][1],
            "sessions": sum(number in batch for batch in info["batches"]),
        }
        for number, name in enumerate(info["classes"])
    ]


@router.post("/api/classes/rename", tags=["classes"])
def rename(body: RenameIn, service: ServiceOf) -> dict[str, Any]:
    """Rename a class."""
    old, new = body.old, body.new
    return _edited(service, [old], new, lambda own, moved: own.rename(old, new, moved))


@router.post("/api/classes/merge", tags=["classes"])
def merge(body: MergeIn, service: ServiceOf) -> dict[str, Any]:
    """Merge several classes into one."""
    merged, into = body.classes, body.into
    return _edited(service, merged, into, lambda own, moved: own.merge(merged, into, True, moved))


@router.post("/api/classes/forget", tags=["classes"])
def forget(body: ForgetIn, service: ServiceOf) -> dict[str, Any]:
    """Remove a class, and report what cannot be removed."""
    return _edited(service, [body.name], None, lambda own, _: own.forget(body.name, True))


def _edited(
    service: Service,
    classes: Sequence[str],
    into: str | None,
    edit: Callable[[ContinualClassifier, Mapping[str, str]], EditResult],
) -> dict[str, Any]:
    """Carry out an edit, then move kept photos accordingly.

    Args:
        into: new name of the classes; None if they are forgotten.
        edit: gets new paths of held-out photos.
    """
    _refuse_while_learning(service)
    service.refuse_unfinished()
    settings, photos = service.settings, service.settings.photos
    new = check_new_name(into, []) if into is not None else None
    moved = moved_by_edit(photos, classes, new) if photos else {}
    # A classifier of its own, so that answers meanwhile are not disturbed.
    classifier = ContinualClassifier.load(settings.folder, settings.backbone)
    done = edit(classifier, {old: path for old, path in moved.items() if path})
    return {"version": done.version, "text": "\n".join([done.text(), *_moved(moved)])}


def _moved(photos: Moves) -> list[str]:
    """Move or remove kept photos; returns what to report of that."""
    try:
        move_photos(photos)
    except UserError as error:
        log("kept photos not moved", logging.WARNING, error=str(error))
        return ["The stored photos could not be moved to the folder of the new class."]
    removed = sum(path is None for path in photos.values())
    return [f"Stored photos of this class, deleted: {removed}."] if removed else []


def _refuse_while_learning(service: Service) -> None:
    if not service.jobs.are_settled():
        raise Refusal(409, "A session is running or waiting. Wait for its end, or cancel it.")
    if service.store.is_new:
        raise Refusal(409, NOTHING_LEARNED)
