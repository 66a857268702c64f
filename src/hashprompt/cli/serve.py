"""`hashprompt serve`: teach and classify in the browser."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from hashprompt.cli.arguments import (
    Backbone,
    Effort,
    NewModel,
    NoReport,
    Settings,
    Sure,
    UnknownThreshold,
    parse_settings,
)
from hashprompt.cli.printing import print_line
from hashprompt.errors import UserError

MEGABYTE = 10**6


def serve(
    model: NewModel,
    host: Annotated[
        str, typer.Option(help="The address to listen at; any other needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8765,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Read-only: no teaching, no edits.")
    ] = False,
    keep_unsure: Annotated[
        bool | None,
        typer.Option(
            "--keep-unsure/--no-keep-unsure",
            help="Store unknown and unsure photos for review; default: as before.",
        ),
    ] = None,
    photos: Annotated[
        Path | None,
        typer.Option(help="Keep taught photos here, in class folders; default: do not keep."),
    ] = None,
    effort: Annotated[Effort, typer.Option(help="Training effort.")] = "normal",
    no_report: NoReport = False,
    sure: Sure = 0.7,
    unknown_threshold: UnknownThreshold = 0.95,
    backbone: Backbone = None,
    set_: Settings = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name by which browsers reach this server."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="HASHPROMPT_TOKEN", help="Required of clients; safer as a variable."),
    ] = None,
    max_photos: Annotated[int, typer.Option(min=1, help="Photos to teach at a time.")] = 1000,
    max_photo_mb: Annotated[int, typer.Option(min=1, help="Size of a photo in MB.")] = 30,
    max_upload_mb: Annotated[int, typer.Option(min=1, help="MB to teach at a time.")] = 500,
    max_waiting: Annotated[int, typer.Option(min=1, help="Photos waiting for answers.")] = 256,
    max_kept: Annotated[int, typer.Option(min=1, help="Unsure photos; the oldest go.")] = 500,
) -> None:
    """Teach and classify in the browser, or by HTTP: a page, and an API (see /docs).

    `hashprompt serve birds/` · then open http://127.0.0.1:8765/
    """
    needed = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")
    missing = [name for name in needed if not find_spec(name)]
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
        photos=max_photos,
        photo_bytes=max_photo_mb * MEGABYTE,
        body_bytes=max_upload_mb * MEGABYTE,
        waiting_photos=max_waiting,
        kept_photos=max_kept,
    )
    run(
        ServeSettings(
            folder=model,
            backbone=backbone,
            options=settings,
            host=host,
            hosts=tuple(allow_host or ()),
            read_only=read_only,
            keep_unsure=keep_unsure,
            photos=photos.expanduser() if photos else None,
            effort=effort,
            reports=not no_report,
            sure=sure,
            unknown_threshold=unknown_threshold,
            token=token,
            limits=limits,
        ),
        port,
        print_line,
    )
