"""`hashprompt serve`: teach and ask in the browser."""

from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from hashprompt.cli.arguments import parse_settings
from hashprompt.cli.printing import print_line
from hashprompt.errors import UserError

MEGABYTE = 10**6


class EffortChoice(str, Enum):  # noqa: UP042 (older typer knows no StrEnum)
    """How long a learn trains."""

    INSTANT = "instant"
    QUICK = "quick"
    NORMAL = "normal"
    BEST = "best"


def serve(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The classifier's folder, new or existing.")
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen at; another than this needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8765,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Answer alone; nothing can be taught or changed.")
    ] = False,
    keep_asked: Annotated[
        bool | None,
        typer.Option(
            "--keep-asked/--no-keep-asked",
            help="Keep photos it is unsure about, to teach them; default: as it was.",
        ),
    ] = None,
    photos: Annotated[
        Path | None,
        typer.Option(help="Keep taught photos here, in class folders; else they are not kept."),
    ] = None,
    effort: Annotated[EffortChoice, typer.Option(help="Of learns.")] = EffortChoice.NORMAL,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Write no page of what a learn changed.")
    ] = False,
    sure: Annotated[
        float, typer.Option(min=0, max=1, help="Call an answer unsure below this probability.")
    ] = 0.7,
    unknown_threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Call an image unknown above this score.")
    ] = 0.95,
    backbone: Annotated[
        str | None, typer.Option("--backbone", "-b", help="See `backbones`, or FILE.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option, as of `run`; may be repeated."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name under which browsers know this server."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="HASHPROMPT_TOKEN", help="Ask for this token; better in the environment."
        ),
    ] = None,
    most_photos: Annotated[int, typer.Option(min=1, help="Photos to teach at a time.")] = 1000,
    most_photo_mb: Annotated[int, typer.Option(min=1, help="Megabytes of a photo.")] = 30,
    most_body_mb: Annotated[int, typer.Option(min=1, help="Megabytes to teach at a time.")] = 500,
    most_waiting: Annotated[int, typer.Option(min=1, help="Photos that wait for answers.")] = 256,
    most_kept: Annotated[int, typer.Option(min=1, help="Unsure photos; the oldest go.")] = 500,
) -> None:
    """Teach and ask in the browser, or by HTTP: a page, and an API (see /docs).

    `hashprompt serve birds/` · then open http://127.0.0.1:8765/
    """
    missing = [name for name in ("fastapi", "uvicorn", "python_multipart") if not find_spec(name)]
    if missing:
        raise UserError(f"`serve` needs {', '.join(missing)}: pip install 'hashprompt[serve]'")
    from hashprompt.backbone.names import with_full_file
    from hashprompt.photos.options import refuse_bad_settings
    from hashprompt.photos.store.store import Store

    model, settings = model.expanduser(), parse_settings(set_)
    # All of it before torch is imported, and before somebody opens the page.
    refuse_bad_settings(settings, Store(model).is_new)
    if backbone is not None:
        with_full_file(backbone)  # refuses what is not there
    if read_only:
        Store(model).header()  # who cannot teach needs something to ask
    if token is not None and not token.strip():
        raise UserError("The token is empty. Give one of some length, or none.")
    from hashprompt.serve.server import serve as run
    from hashprompt.serve.settings import Limits, ServeSettings

    limits = Limits(
        photos=most_photos,
        photo_bytes=most_photo_mb * MEGABYTE,
        body_bytes=most_body_mb * MEGABYTE,
        waiting_photos=most_waiting,
        kept_photos=most_kept,
    )
    run(
        ServeSettings(
            folder=model,
            backbone=backbone,
            options=settings,
            host=host,
            hosts=tuple(allow_host or ()),
            read_only=read_only,
            keep_asked=keep_asked,
            photos=photos.expanduser() if photos else None,
            effort=effort.value,
            reports=not no_report,
            sure=sure,
            unknown_threshold=unknown_threshold,
            token=token,
            limits=limits,
        ),
        port,
        print_line,
    )


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(rich_help_panel="Own photos")(serve)
