"""timm's published weights, from the Hugging Face hub or from a file that was brought."""

import os
from pathlib import Path

from hashprompt.backbone.catalogue import find_file, must_be_typed, unavailable
from hashprompt.backbone.names import refusal, timm_names
from hashprompt.errors import UserError
from hashprompt.storage.download import MAX_SIZE, TIMEOUT, DownloadError

FILE = "model.safetensors"


def timm_file(name: str, may_download: bool = True) -> Path:
    """The file of a timm name, downloaded from its hub if it is not on this machine."""
    file = find_file(name) or _cached_file(f"timm/{name}")
    if file is not None:  # without timm, whose import takes seconds
        return file
    if name not in timm_names():
        raise UserError(refusal(name))
    from timm.models import get_pretrained_cfg

    config = get_pretrained_cfg(name)
    repository = (config and config.hf_hub_id) or f"timm/{name}"
    return _cached_file(repository) or _hub_file(name, repository, may_download)


def _cached_file(repository: str) -> Path | None:
    """The weights of a repository, if the hub's own cache has them."""
    from huggingface_hub import try_to_load_from_cache

    try:
        # Not `hf_hub_download(local_files_only=True)`: that asks the hub about something else.
        cached = try_to_load_from_cache(repository, FILE)
    except ValueError:  # a name that no repository can have
        return None
    return Path(cached) if isinstance(cached, str) else None


def _hub_file(name: str, repository: str, may_download: bool) -> Path:
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    endpoint = os.environ.get("HF_ENDPOINT")
    url = hf_hub_url(repository, FILE, endpoint=endpoint)
    if not may_download:
        raise UserError(must_be_typed(name, url))
    try:
        # The client tries for half a minute where there is no connection; this asks once.
        size = get_hf_file_metadata(url, timeout=TIMEOUT).size or 0
        if size > MAX_SIZE:
            raise DownloadError(f"it announces {size:,} bytes; at most {MAX_SIZE:,} are expected")
        return Path(hf_hub_download(repository, FILE, endpoint=endpoint))
    except Exception as error:  # its versions build on other web clients with other errors
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(unavailable(name, url, reason, f"{name}.safetensors")) from error
