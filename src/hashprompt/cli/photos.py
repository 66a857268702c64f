"""`hashprompt learn`, `predict` and `sort`: classify own photos."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hashprompt.cli.arguments import (
    AsJson,
    Backbone,
    Effort,
    Model,
    NewModel,
    NoReport,
    PlanOnly,
    Quiet,
    Rename,
    Settings,
    Sure,
    UnknownThreshold,
    parse_settings,
)
from hashprompt.cli.classifiers import asking, existing, print_done, renamed
from hashprompt.cli.printing import console, errors, print_json, print_line
from hashprompt.errors import UserError
from hashprompt.ui.terminal import Column, PlainTable, styled

if TYPE_CHECKING:
    from hashprompt.photos import Answer, ContinualClassifier


def learn(
    model: NewModel,
    photos: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PHOTOS]", help="A folder with one folder per class, or a CSV file."
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(help="Photos to test with; without it a fifth of each class is held out."),
    ] = None,
    instant: Annotated[
        bool, typer.Option("--instant", help="Fit on frozen features only, without training.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Train for a shorter time.")] = False,
    best: Annotated[bool, typer.Option("--best", help="Train for a longer time.")] = False,
    plan: PlanOnly = False,
    backbone: Backbone = None,
    rename: Rename = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted session.")
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Drop the interrupted session, then learn these.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(help="Folder of the page about what changed; default: MODEL-reports."),
    ] = None,
    no_report: NoReport = False,
    unreadable: Annotated[
        Literal["stop", "skip"], typer.Option(help="What to do about broken images.")
    ] = "stop",
    set_: Settings = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Teach a classifier photos: new classes, more of known ones, or both.

    Examples:

    `hashprompt learn birds/ photos/2026-05/` · class folders: photos/2026-05/robin/1.jpg …

    `hashprompt learn birds/ photos/2026-06/ --plan` · what would be done, and how long it takes

    `hashprompt learn birds/ photos/2026-06/ --instant` · in seconds, without training

    `hashprompt learn birds/ --resume` · after a crash
    """
    _refuse_both("--quick", quick, "--best", best)
    _refuse_both("--instant", instant, "--quick or --best", quick or best)
    _refuse_both("--resume", resume, "--discard", discard)
    _refuse_both("--report", report is not None, "--no-report", no_report)
    if photos is None and (plan or not resume):
        raise UserError(f"Say what to learn: hashprompt learn {model} PHOTOS")
    effort: Effort = "instant" if instant else "quick" if quick else "best" if best else "normal"
    given_names = renamed(rename)
    classifier = _new_or_existing(model, backbone, parse_settings(set_))

    def carry_out(names: dict[str, str]) -> Any:
        how: Any = {"test": test, "effort": effort, "rename": names, "unreadable": unreadable}
        if plan:
            return classifier.plan(photos, **how)
        page = False if no_report else report or True
        return classifier.learn(
            photos, resume=resume, discard=discard, report=page, quiet=quiet, **how
        )

    print_done(asking(carry_out, given_names), as_json)


def predict(
    model: Model,
    images: Annotated[
        list[str], typer.Argument(metavar="IMAGES…", help="Files, folders or '*.jpg' patterns.")
    ],
    top: Annotated[int, typer.Option(min=1, help="Classes to list for each image.")] = 3,
    unknown_threshold: UnknownThreshold = 0.95,
    as_json: AsJson = False,
    csv: Annotated[Path | None, typer.Option(help="Write the answers to this file.")] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Images at a time; answers change by rounding only.")
    ] = 32,
    version: Annotated[int | None, typer.Option(help="Use this version.")] = None,
    backbone: Backbone = None,
) -> None:
    """Classify pictures.

    An image that cannot be read gets an error in place of an answer; then the exit code is 1.

    `hashprompt predict birds/ garden.jpg other/*.jpg --json`
    """
    _refuse_both("--json", as_json, "--csv", csv is not None)
    from hashprompt.schemas.exported import is_exported

    question: dict[str, Any] = {"unknown_threshold": unknown_threshold, "batch_size": batch_size}
    if is_exported(model.expanduser()):
        if version is not None or backbone is not None:
            raise UserError(
                f"{model} was exported to ONNX: it is one version, with its backbone. Leave out "
                "--version and --backbone."
            )
        from hashprompt.photos.onnx.model import OnnxClassifier

        answers = OnnxClassifier(model).predict(images, **question)
    else:
        answers = existing(model, backbone).predict(images, version=version, **question)
    if csv:
        from hashprompt.photos.answers import to_csv
        from hashprompt.storage.files import as_given, write_atomically

        write_atomically(as_given(csv), to_csv(answers, top).encode())
        print_line(f"{len(answers)} answers: {csv}")
    elif as_json:
        print_json([answer.to_dict(top) for answer in answers])
    else:
        _show_answers(answers, top)
    failed = sum(answer.error is not None for answer in answers)
    if failed:
        errors.print(f"{failed} of {len(answers)} images could not be read.", style="red")
        raise typer.Exit(1)


def sort(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL INBOX", help="With --new no MODEL."),
    ],
    into: Annotated[Path, typer.Option(help="The folder to sort into, new or existing.")],
    new: Annotated[
        bool, typer.Option("--new", help="Without a classifier: clusters of similar photos.")
    ] = False,
    sure: Sure = 0.7,
    unknown_threshold: UnknownThreshold = 0.95,
    copy: Annotated[bool, typer.Option("--copy", help="Make copies instead of links.")] = False,
    move: Annotated[bool, typer.Option("--move", help="Remove sorted photos from INBOX.")] = False,
    backbone: Backbone = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Sort photos into folders of classes, unsure ones into unsure/, unknown ones into clusters.

    Photos stay where they are: the folders hold links to them, or copies. After a kill, the same
    command resumes. An image that cannot be read is left out; then the exit code is 1.

    `hashprompt sort birds/ inbox/ --into sorted/` · then correct the mistakes, and learn sorted/

    `hashprompt sort --new inbox/ --into sorted/` · no classifier yet: give the clusters names
    """
    if len(folders) != (1 if new else 2):
        wanted = "--new INBOX" if new else "MODEL INBOX"
        raise UserError(f"Give {wanted}: hashprompt sort {wanted} --into FOLDER")
    if new:
        from hashprompt.photos import group_photos

        done = group_photos(folders[0], into, backbone, copy, move, quiet)
    else:
        done = existing(folders[0], backbone).sort(
            folders[1], into, sure, unknown_threshold, copy, move, quiet
        )
    print_done(done, as_json)
    if done.unreadable:
        raise typer.Exit(1)


# Opening. ------------------------------------------------------------------------------------


def _new_or_existing(
    model: Path, backbone: str | None, settings: dict[str, Any]
) -> "ContinualClassifier":
    from hashprompt.photos.options import refuse_bad_settings
    from hashprompt.photos.store.store import Store

    # Before torch: a bad option, or a folder that is something else, is refused at once.
    refuse_bad_settings(settings, Store(model.expanduser()).is_new)
    from hashprompt.photos import ContinualClassifier

    return ContinualClassifier(model, backbone, **settings)


def _refuse_both(first: str, one: bool, second: str, other: bool) -> None:
    if one and other:
        raise UserError(f"Give {first} or {second}, not both.")


# Printing. -----------------------------------------------------------------------------------


def _show_answers(answers: "Sequence[Answer]", top: int) -> None:
    file = Column("file", overflow="fold")
    sure, unknown = Column("how sure", justify="right"), Column("unknown", justify="right")
    table = PlainTable(file, "answer", sure, unknown, "next best", box=None, pad_edge=False)
    for answer in answers:
        if answer.error is not None:
            table.add_row(answer.name, "error", style="red")
            continue
        others = ", ".join(f"{other} {_share(p)}" for other, p in answer.top(top)[1:])
        warned = (("unknown", "yellow"), ", most like ") if answer.is_unknown else ()
        said = styled(*warned, str(answer.label))
        sure_cell, unknown_cell = _share(answer.confidence), f"{answer.unknown:.2f}"
        table.add_row(answer.name, said, sure_cell, unknown_cell, others)
    console.print(table)
    for answer in answers:  # in full: reasons are long for a column
        if answer.error is not None:
            print_line(str(answer), "red")
    if len(answers) == 1 and answers[0].reminds_of:
        near = dict.fromkeys(f"{r['class']} from {r['learned']}" for r in answers[0].reminds_of)
        print_line(f"Reminds of {', '.join(near)}.")


def _share(probability: float) -> str:
    return f"{100 * probability:.0f} %"
