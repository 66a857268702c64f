"""Versions, undo and reports; and classes: rename, merge, forget."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse
from pydantic import Field

from hashprompt.photos import ContinualClassifier
from hashprompt.photos.report.changes import history_of, percent, undone_versions
from hashprompt.photos.results import EditResult
from hashprompt.serve.http.problems import Refusal
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
    version = service.store.go_to(body.to)
    service.archive.write_list()
    return {"version": version.number, "text": f"Version {version.number} is in use now."}


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
    return _edited(service, lambda own: own.rename(body.old, body.new))


@router.post("/api/classes/merge", tags=["classes"])
def merge(body: MergeIn, service: ServiceOf) -> dict[str, Any]:
    """Merge several classes into one."""
    return _edited(service, lambda own: own.merge(body.classes, body.into, quiet=True))


@router.post("/api/classes/forget", tags=["classes"])
def forget(body: ForgetIn, service: ServiceOf) -> dict[str, Any]:
    """Remove a class with its stored photos, and report what cannot be removed."""
    deleted = 0

    def delete_photos() -> None:
        nonlocal deleted
        deleted = service.archive.delete(body.name)

    done = _edited(
        service, lambda own: own.forget(body.name, quiet=True, before_commit=delete_photos)
    )
    if deleted:
        done["text"] += f"\nStored photos of this class, deleted: {deleted}."
    return done


def _edited(service: Service, edit: Callable[[ContinualClassifier], EditResult]) -> dict[str, Any]:
    _refuse_while_learning(service)
    service.refuse_unfinished()
    settings = service.settings
    # A classifier of its own, so that answers meanwhile are not disturbed.
    done = edit(ContinualClassifier.load(settings.folder, settings.backbone))
    service.archive.write_list()
    return {"version": done.version, "text": done.text()}


def _refuse_while_learning(service: Service) -> None:
    if not service.jobs.are_settled():
        raise Refusal(409, "A session is running or waiting. Wait for its end, or cancel it.")
    if service.store.is_new:
        raise Refusal(409, NOTHING_LEARNED)
