"""The files of backbones: embedded, brought, in the catalogue, or on timm's Hugging Face hub."""

import os
from pathlib import Path

from hashprompt.backbone.catalogue import (
    CATALOGUE,
    NANO,
    brought_file,
    find_file,
    must_be_typed,
    obtain,
    unavailable,
)
from hashprompt.backbone.names import nano_file, refusal, timm_names
from hashprompt.errors import UserError
from hashprompt.storage.download import MAX_SIZE, TIMEOUT, DownloadError

FILE = "model.safetensors"


def weights_file(name: str, may_download: bool = True) -> tuple[str | None, Path]:
    """The published name or architecture of a backbone (None: from the file), and its file."""
    if name == NANO:
        return None, nano_file()
    if brought := brought_file(name):
        return brought
    return name, (obtain if name in CATALOGUE else timm_file)(name, may_download)


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
        # Not `hf_hub_download(local_files_only=True)`, which still sends a request.
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
        # The client tries for half a minute without a connection; this request fails at once.
        size = get_hf_file_metadata(url, timeout=TIMEOUT).size or 0
        if size > MAX_SIZE:
            raise DownloadError(f"the server announces {size:,} bytes; at most {MAX_SIZE:,}")
        return Path(hf_hub_download(repository, FILE, endpoint=endpoint))
    except Exception as error:  # its versions build on other web clients with other errors
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(unavailable(name, url, reason, f"{name}.safetensors")) from error
