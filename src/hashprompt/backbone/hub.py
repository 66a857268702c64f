"""The files of backbones: embedded, brought, in the catalogue, or on timm's Hugging Face hub."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hashprompt.backbone.catalogue import (
    CATALOGUE,
    NANO,
    brought_file,
    download_folder,
    find_file,
)
from hashprompt.backbone.names import nano_file, refusal, timm_names
from hashprompt.errors import UserError
from hashprompt.storage.download import MAX_SIZE, TIMEOUT, DownloadError, download

FILE = "model.safetensors"


def weights_file(name: str, may_download: bool = True) -> tuple[str | None, Path]:
    """The published name or architecture of a backbone (None: from the file), and its file."""
    if name == NANO:
        return None, nano_file()
    if brought := brought_file(name):
        return brought
    return name, (obtain if name in CATALOGUE else timm_file)(name, may_download)


def obtain(name: str, may_download: bool = True) -> Path:
    """The file of a checkpoint of the catalogue, downloaded if it is not on this machine."""
    if path := find_file(name):
        return path
    checkpoint = CATALOGUE[name]
    path = download_folder() / f"{name}{checkpoint.suffix}"
    with _downloading(name, checkpoint.url, path.name, may_download):
        # Twice the size, which is computed.
        download(checkpoint.url, path, max_size=2 * checkpoint.megabytes * 10**6)
    return path


def timm_file(name: str, may_download: bool = True) -> Path:
    """The file of a timm name, downloaded from its hub if it is not on this machine."""
    file = find_file(name) or _cached_file(f"timm/{name}")
    if file is not None:  # without timm, whose import takes seconds
        return file
    if name not in timm_names():
        raise UserError(refusal(name))
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from timm.models import get_pretrained_cfg

    config = get_pretrained_cfg(name)
    repository = (config and config.hf_hub_id) or f"timm/{name}"
    file = _cached_file(repository)
    if file is None:
        endpoint = os.environ.get("HF_ENDPOINT")
        url = hf_hub_url(repository, FILE, endpoint=endpoint)
        with _downloading(name, url, f"{name}.safetensors", may_download):
            # The client tries for half a minute without a connection; this request fails at once.
            size = get_hf_file_metadata(url, timeout=TIMEOUT).size or 0
            if size > MAX_SIZE:
                raise DownloadError(f"the server announces {size:,} bytes; at most {MAX_SIZE:,}")
            file = Path(hf_hub_download(repository, FILE, endpoint=endpoint))
    return file


def _cached_file(repository: str) -> Path | None:
    """The weights of a repository, if the hub's own cache has them."""
    from huggingface_hub import try_to_load_from_cache

    try:
        # Not `hf_hub_download(local_files_only=True)`, which still sends a request.
        cached = try_to_load_from_cache(repository, FILE)
    except ValueError:  # a name that no repository can have
        return None
    return Path(cached) if isinstance(cached, str) else None


@contextmanager
def _downloading(name: str, url: str, file: str, may_download: bool) -> Iterator[None]:
    """Around a download: refuses one that the user did not ask for, and explains a failed one.

    The origin of a name in a stored folder is unknown.
    """
    if not may_download:
        raise UserError(
            f"Its backbone `{name}` is not on this machine, and nothing is downloaded because a "
            f"folder names it. To download it from {url}, give `--backbone {name}` (in Python "
            f'backbone="{name}"), or `--download` (download=True) to resume a run.'
        )
    try:
        yield
    except Exception as error:  # of the hub's client: its versions have other errors
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(
            f"Could not get the weights of `{name}` from {url}: {reason}. Without a connection, "
            f"bring that file to this machine and pass `{name}@FILE`; or save it as {file} in the "
            f"folder that HASHPROMPT_WEIGHTS names, or in {download_folder()}."
        ) from error
