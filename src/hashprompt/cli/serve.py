"""`hashprompt serve`: teach and classify in the browser."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from hashprompt.cli import arguments as args
from hashprompt.cli.printing import print_line
from hashprompt.errors import UserError

MEGABYTE = 10**6


def serve(
    model: args.NewModel,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N")] = 8765,
    read_only: bool = False,
    keep_unsure: bool = False,
    photos: Path | None = None,
    effort: Annotated[args.Effort, typer.Option(metavar="LEVEL")] = "normal",
    no_report: bool = False,
    sure: args.Probability = 0.7,
    unknown_threshold: args.Probability = 0.95,
    backbone: args.Backbone = None,
    set_: args.Settings = None,
    allow_host: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    token: Annotated[str | None, typer.Option(envvar="HASHPROMPT_TOKEN")] = None,
    max_photos: args.Number = 1000,
    max_photo_mb: args.Number = 30,
    max_upload_mb: args.Number = 500,
    max_waiting: args.Number = 256,
    max_kept: args.Number = 500,
) -> None:
    """Teach and classify in the browser or by HTTP.

    `hashprompt serve birds/` · then open http://127.0.0.1:8765/ (API: /docs)

    Args:
        host: Address to listen on; any but this machine's own requires a token.
        port: Port to listen on; 0: any free one.
        read_only: Allow no teaching and no edits.
        keep_unsure: Keep unknown and unsure photos for review; the page can switch this off.
        photos: Keep taught photos here, with a list of their classes; default: do not keep them.
        effort: Training effort: instant, quick, normal or best.
        no_report: Write no page about what a session changed.
        sure: Answers with a lower probability count as unsure.
        unknown_threshold: Photos with a higher unknown score count as unknown.
        allow_host: Another name under which browsers may reach this server.
        token: Required of clients; safer as a variable.
        max_photos: Photos to teach at a time.
        max_photo_mb: Size of a photo in MB.
        max_upload_mb: Size of an upload in MB.
        max_waiting: Photos waiting for answers.
        max_kept: Unsure photos to keep; the oldest are dropped.
    """
    needed = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")
    missing = [name for name in needed if not find_spec(name)]
    if missing:
        raise UserError(f"`serve` needs {', '.join(missing)}: pip install 'hashprompt[serve]'")
    from hashprompt.backbone.names import with_full_file
    from hashprompt.photos.options import refuse_bad_settings
    from hashprompt.photos.store.store import Store

    model, settings = model.expanduser(), args.parse_settings(set_)
    # Before torch is imported, and before anybody opens the page.
    refuse_bad_settings(settings, Store(model).is_new)
    if backbone is not None:
        with_full_file(backbone)  # refuses what is not there
    if read_only:
        Store(model).header()  # refuses a classifier that does not exist
    if token is not None and not token.strip():
        raise UserError("The token is empty. Expected a token of some length, or none.")
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
            keep_unsure=keep_unsure or None,
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
