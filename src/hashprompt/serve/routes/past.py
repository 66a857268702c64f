"""History, undo, reports; and classes: rename, merge, forget."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from hashprompt.classifier import ContinualClassifier
from hashprompt.classifier.changes import history_of, line_of_descent, percent
from hashprompt.errors import UserError
from hashprompt.serve.models import (
    ChangedOut,
    ClassesOut,
    ForgetIn,
    HistoryOut,
    MergeIn,
    RenameIn,
    UndoIn,
)
from hashprompt.serve.problems import Refusal
from hashprompt.serve.service import Service, ServiceOf
from hashprompt.storage.files import inside, read_file
from hashprompt.texts import visible

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
    sound = [row for row in rows if not row["damaged"]]
    line = line_of_descent(sound)
    trained = {(row["parent"], row["source"]) for row in sound if not row["is_look"]}
    versions = []
    for row in rows:
        if row["damaged"]:
            versions.append(_damaged(row))
            continue
        # A first look that training went beyond was never undone.
        is_beside = row["is_look"] and (row["parent"], row["source"]) in trained
        versions.append({**_shown(row), "undone": row["version"] not in line and not is_beside})
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
    version = service.store.go_to(body.to)
    text = f"Version {version.number} answers now; it knows {len(version.info['classes'])} classes."
    return {"version": version.number, "text": text}


@router.get("/api/reports/{version}", response_class=HTMLResponse)
def report(version: int, service: ServiceOf) -> HTMLResponse:
    """The page of what a learn changed, with pictures of confused photos."""
    folder = service.settings.folder.resolve()
    if not 0 < version < 10**9:
        raise Refusal(404, "There is no such version.")
    file = inside(folder.parent, f"{folder.name}-reports", f"version-{version:04d}.html")
    try:
        content = read_file(file).decode()
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
    return _edited(service, lambda classifier: classifier.rename(body.old, body.new))


@router.post("/api/classes/merge", response_model=ChangedOut, tags=["classes"])
def merge(body: MergeIn, service: ServiceOf) -> dict[str, Any]:
    """Make one class of several."""
    return _edited(service, lambda classifier: classifier.merge(body.classes, body.into, True))


@router.post("/api/classes/forget", response_model=ChangedOut, tags=["classes"])
def forget(body: ForgetIn, service: ServiceOf) -> dict[str, Any]:
    """Know a class no longer; the text says what stays of it."""
    return _edited(service, lambda classifier: classifier.forget(body.name, True))


def _edited(service: Service, edit: Callable[[ContinualClassifier], Any]) -> dict[str, Any]:
    _refuse_while_learning(service)
    service.refuse_unfinished()
    settings = service.settings
    # One of its own: what answers meanwhile must not be touched.
    done = edit(ContinualClassifier.load(settings.folder, settings.backbone))
    return {"version": done.version, "text": done.text()}


def _refuse_while_learning(service: Service) -> None:
    if not service.jobs.are_settled():
        raise Refusal(409, "A learn is running or waiting. Wait until it is done, or cancel it.")
    if service.store.is_new:
        raise UserError("It has learned nothing yet: teach it first.")
