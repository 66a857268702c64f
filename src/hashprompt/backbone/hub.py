"""timm's published weights, from the Hugging Face hub or from a file that was brought."""

import difflib
import os
from pathlib import Path

import torch

from hashprompt.backbone.architecture import create
from hashprompt.backbone.catalogue import (
    CATALOGUE,
    HOW_TO_NAME,
    NANO,
    find_file,
    must_be_typed,
    unavailable,
)
from hashprompt.errors import UserError
from hashprompt.storage.download import MAX_SIZE, TIMEOUT, DownloadError

FILE = "model.safetensors"


def timm_file(name: str, may_download: bool = True) -> Path:
    """The file of a timm name, downloaded from its hub if it is not on this machine."""
    import timm
    from timm.models import get_pretrained_cfg

    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        names = [NANO, *CATALOGUE, *timm.list_models(module="vision_transformer")]
        close = difflib.get_close_matches(name, names, n=4, cutoff=0.5)
        hint = f" Did you mean {', '.join(f'`{n}`' for n in close)}?" if close else ""
        raise UserError(f"Unknown backbone `{name}`. {HOW_TO_NAME}{hint}")
    published = timm.list_pretrained(f"{architecture}.*")
    if name not in published:
        # Without a tag timm takes the newest; one name has stood for three `21k` that way.
        choice = published or difflib.get_close_matches(name, timm.list_pretrained("vit_*"), n=5)
        raise UserError(
            f"`{name}` does not say which weights: a timm name needs its tag. Choose one of "
            f"{', '.join(f'`{n}`' for n in choice)}."
        )
    config = get_pretrained_cfg(name)
    repository = (config and config.hf_hub_id) or f"timm/{name}"
    return find_file(name) or _hub_file(name, repository, may_download)


def cached_file(repository: str) -> Path | None:
    """The weights of a repository, if the hub's own cache has them."""
    from huggingface_hub import try_to_load_from_cache

    # Not `hf_hub_download(local_files_only=True)`: that asks the hub about something else.
    cached = try_to_load_from_cache(repository, FILE)
    return Path(cached) if isinstance(cached, str) else None


def _hub_file(name: str, repository: str, may_download: bool) -> Path:
    """The weights in a repository of the hub, from its own cache or downloaded."""
    cached = cached_file(repository)
    if cached is not None:
        return cached
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    endpoint, file = os.environ.get("HF_ENDPOINT"), FILE
    url = hf_hub_url(repository, file, endpoint=endpoint)
    if not may_download:
        with torch.device("meta"):
            numbers = sum(parameter.numel() for parameter in create(name).parameters())
        raise UserError(must_be_typed(name, url, 4 * numbers / 1e6))
    try:
        # The client tries for half a minute where there is no connection; this asks once.
        size = get_hf_file_metadata(url, timeout=TIMEOUT).size or 0
        if size > MAX_SIZE:
            raise DownloadError(
                f"it announces {size:,} bytes, and at most {MAX_SIZE:,} are expected"
            )
        return Path(hf_hub_download(repository, file, endpoint=endpoint))
    except Exception as error:  # its versions build on other web clients with other errors
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(unavailable(name, url, reason, f"{name}.safetensors")) from error
