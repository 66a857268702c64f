"""`hashprompt learn`, `predict` and `sort`: classify own photos."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hashprompt.cli import arguments as args
from hashprompt.cli.classifiers import asking, existing, print_done, renamed
from hashprompt.cli.printing import console, errors, print_json, print_line
from hashprompt.errors import UserError
from hashprompt.ui.terminal import Column, PlainTable, styled

if TYPE_CHECKING:
    from hashprompt.photos import Answer


def learn(
    model: args.NewModel,
    photos: Annotated[Path | None, typer.Argument(metavar="[PHOTOS]")] = None,
    test: Path | None = None,
    instant: bool = False,
    quick: bool = False,
    best: bool = False,
    plan: args.PlanOnly = False,
    backbone: args.Backbone = None,
    rename: args.Rename = None,
    resume: bool = False,
    discard: bool = False,
    report: Path | None = None,
    no_report: bool = False,
    unreadable: Literal["stop", "skip"] = "stop",
    set_: args.Settings = None,
    quiet: args.Quiet = False,
    as_json: args.AsJson = False,
) -> None:
    """Teach photos to a classifier: new classes, more photos of known classes, or both.

    Examples:

    `hashprompt learn birds/ photos/2026-05/` · class folders: photos/2026-05/robin/1.jpg …

    `hashprompt learn birds/ photos/2026-06/ --plan` · what would be done, and the time it takes

    `hashprompt learn birds/ photos/2026-06/ --instant` · in seconds, without training

    `hashprompt learn birds/ --resume` · after a crash

    Args:
        photos: A folder with one folder per class, or a CSV file.
        test: Photos to test with; default: a fifth of each class is held out.
        instant: Fit on frozen features only, without training.
        quick: Train for a shorter time.
        best: Train for a longer time.
        resume: Resume an interrupted session.
        discard: Drop the interrupted session, then learn these photos.
        report: Folder of the page about what changed; default: MODEL-reports.
        no_report: Write no such page.
        unreadable: What to do about broken images.
    """
    _refuse_both("--quick", quick, "--best", best)
    _refuse_both("--instant", instant, "--quick or --best", quick or best)
    _refuse_both("--resume", resume, "--discard", discard)
    _refuse_both("--report", report is not None, "--no-report", no_report)
    if photos is None and (plan or not resume):
        raise UserError(f"No photos given. Expected: hashprompt learn {model} PHOTOS")
    effort: args.Effort = (
        "instant" if instant else "quick" if quick else "best" if best else "normal"
    )
    given_names, settings = renamed(rename), args.parse_settings(set_)
    from hashprompt.photos.options import refuse_bad_settings
    from hashprompt.photos.store.store import Store

    # Before torch: a bad option, or a folder that is something else, is refused at once.
    refuse_bad_settings(settings, Store(model.expanduser()).is_new)
    from hashprompt.photos import ContinualClassifier

    classifier = ContinualClassifier(model, backbone, **settings)

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
    model: args.Model,
    images: Annotated[list[str], typer.Argument(metavar="IMAGES…")],
    top: args.Number = 3,
    unknown_threshold: args.Probability = 0.95,
    as_json: args.AsJson = False,
    csv: Path | None = None,
    batch_size: args.Number = 32,
    version: int | None = None,
    backbone: args.Backbone = None,
) -> None:
    """Classify images.

    An image that cannot be read gets an error instead of an answer, and the exit code is 1.

    `hashprompt predict birds/ garden.jpg other/*.jpg --json`

    Args:
        images: Files, folders or '*.jpg' patterns.
        top: Classes to list for each image.
        unknown_threshold: Images with a higher unknown score count as unknown.
        csv: Write the answers to this file.
        batch_size: Images at a time; answers change by rounding only.
        version: Version to use; default: the current one.
    """
    _refuse_both("--json", as_json, "--csv", csv is not None)
    from hashprompt.photos.onnx.description import is_exported

    question: dict[str, Any] = {"unknown_threshold": unknown_threshold, "batch_size": batch_size}
    if is_exported(model.expanduser()):
        if version is not None or backbone is not None:
            raise UserError(f"{model} is exported to ONNX. Leave out --version and --backbone.")
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
        _show_answers(answers, top, unknown_threshold)
    failed = sum(answer.error is not None for answer in answers)
    if failed:
        errors.print(f"{failed} of {len(answers)} images could not be read.", style="red")
        raise typer.Exit(1)


def sort(
    folders: Annotated[list[Path], typer.Argument(metavar="MODEL INBOX")],
    into: Annotated[Path, typer.Option()],
    new: bool = False,
    sure: args.Probability = 0.7,
    unknown_threshold: args.Probability = 0.95,
    copy: bool = False,
    move: bool = False,
    backbone: args.Backbone = None,
    quiet: args.Quiet = False,
    as_json: args.AsJson = False,
) -> None:
    """Sort photos into one folder per class, unsure/, and clusters of unknown photos.

    Photos stay where they are: the folders hold links to them, or copies. After an interruption,
    the same command resumes. Unreadable images are left out, and the exit code is 1.

    `hashprompt sort birds/ inbox/ --into sorted/` · then correct the mistakes, and learn sorted/

    `hashprompt sort --new inbox/ --into sorted/` · no classifier yet: rename the clusters

    Args:
        folders: The classifier and the photos; with --new only the photos.
        into: The folder to sort into, new or existing.
        new: Sort without a classifier, into clusters of similar photos.
        sure: Answers with a lower probability count as unsure.
        unknown_threshold: Images with a higher unknown score count as unknown.
        copy: Make copies instead of links.
        move: Remove sorted photos from INBOX.
    """
    if len(folders) != (1 if new else 2):
        wanted = "--new INBOX" if new else "MODEL INBOX"
        raise UserError(f"Give {wanted}: hashprompt sort {wanted} --into FOLDER")
    if new:
        from hashprompt.photos import cluster_photos

        done = cluster_photos(folders[0], into, backbone, copy, move, quiet)
    else:
        done = existing(folders[0], backbone).sort(
            folders[1], into, sure, unknown_threshold, copy, move, quiet
        )
    print_done(done, as_json)
    if done.unreadable:
        raise typer.Exit(1)


def _refuse_both(first: str, one: bool, second: str, other: bool) -> None:
    if one and other:
        raise UserError(f"Give {first} or {second}, not both.")


def _show_answers(answers: "Sequence[Answer]", top: int, unknown_threshold: float) -> None:
    file = Column("file", overflow="fold")
    numbers = (Column(name, justify="right") for name in ("probability", "unknown"))
    table = PlainTable(file, "answer", *numbers, "next best", box=None, pad_edge=False)
    for answer in answers:
        if answer.error is not None:
            table.add_row(answer.name, "error", style="red")
            continue
        others = ", ".join(f"{other} {p:.0%}" for other, p in answer.top(top)[1:])
        warning = (("unknown", "yellow"), ", closest: ") if answer.is_unknown else ()
        label = styled(*warning, str(answer.label))
        numbers_of = (f"{answer.confidence:.0%}", f"{answer.unknown:.2f}")
        table.add_row(answer.name, label, *numbers_of, others)
    console.print(table)
    print_line(
        "unknown: 0 is typical of the learned classes, 1 is unlike all of them; above "
        f"{unknown_threshold:g} an image counts as unknown.",
        "dim",
    )
    for answer in answers:  # in full: reasons are long for a column
        if answer.error is not None:
            print_line(str(answer), "red")
    if len(answers) == 1 and answers[0].closest:
        near = dict.fromkeys(
            f"{near['class']} (learned {near['learned']})" for near in answers[0].closest
        )
        print_line(f"Closest classes: {', '.join(near)}.")
