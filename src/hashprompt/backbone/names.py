"""The names of backbones, with a sentence each. Nothing heavy is imported here."""

import difflib
import re
from contextlib import suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from hashprompt.backbone.catalogue import (
    CATALOGUE,
    FILE_TYPES,
    HOW_TO_NAME,
    NANO,
    brought_file,
    find_file,
)
from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import read_file

PUBLISHED = re.compile(r"^    '([a-z]\w*\.\w+)':", re.MULTILINE)  # keys of timm's `default_cfgs`


def available_backbones() -> dict[str, str]:
    """Backbones by name, with a sentence each and their files, for listings."""
    published = {}
    for name, checkpoint in CATALOGUE.items():
        host = urlsplit(checkpoint.url).netloc
        state = f"not here, about {checkpoint.megabytes} MB to download from {host}"
        if path := find_file(name):
            state = f"here, {path.stat().st_size / 1e6:.0f} MB, {path}"
        published[name] = f"{checkpoint.summary} · {state}"
    return {
        NANO: "embedded toy: 6 blocks, width 128, 32 px, pretrained on synthetic glyphs",
        **published,
        **cached_models(),
        "TIMM_NAME": "any timm ViT with a class token, with its tag; downloaded from its hub",
        "NAME@FILE": "one of the above whose file you bring",
        "FILE": f"a local file ({', '.join(FILE_TYPES)}); architecture from it, or ARCH@FILE",
    }


def cached_models() -> dict[str, str]:
    """timm's models in the hub's cache, with their sizes, for listings."""
    from huggingface_hub import constants, scan_cache_dir

    with suppress(Exception):  # no cache yet, or one that another version made
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
        return {
            repo.repo_id.removeprefix("timm/"): f"timm · here, {repo.size_on_disk / 1e6:.0f} MB"
            for repo in sorted(repositories, key=lambda repo: repo.repo_id)
            if repo.repo_id.startswith("timm/") and repo.size_on_disk
        }
    return {}


def with_full_file(name: str) -> str:
    """The name of a backbone with an absolute path, so that `resume` works from every folder.

    Names with a tag are checked by timm later.

    Raises:
        UserError: for an unknown name or a missing file.
    """
    brought = brought_file(name)
    if brought is None:
        if name != NANO and name not in CATALOGUE and "." not in name:
            raise UserError(refusal(name))
        return name
    architecture, file = brought
    if not file.is_file():
        raise UserError(f"No weights file at {file}. {HOW_TO_NAME}")
    return f"{architecture}@{file.resolve()}" if architecture is not None else str(file.resolve())


def refusal(name: str) -> str:
    """The message for an unknown name, or one without the tag of its weights."""
    tagged = [full for full in timm_names() if full.partition(".")[0] == name.partition(".")[0]]
    if tagged:
        # Without a tag timm takes the newest; one name stood for three `21k` in this way.
        return (
            f"`{name}` does not say which weights: a timm name needs its tag. Choose one of "
            f"{', '.join(f'`{full}`' for full in tagged)}."
        )
    vits = dict.fromkeys(full.partition(".")[0] for full in timm_names("vision_transformer"))
    close = difflib.get_close_matches(name, [NANO, *CATALOGUE, *vits], n=4, cutoff=0.5)
    hint = f" Did you mean {', '.join(f'`{near}`' for near in close)}?" if close else ""
    return f"Unknown backbone `{shortened(name)}`. {HOW_TO_NAME}{hint}"


def timm_names(module: str = "*") -> list[str]:
    """Published weights, `ARCHITECTURE.TAG`, from the source of timm's modules.

    They are read as text, since importing timm takes seconds.
    """
    spec = find_spec("timm")
    folders = [Path(place) / "models" for place in (spec and spec.submodule_search_locations) or ()]
    texts = (read_file(file).decode() for f in folders for file in f.glob(f"{module}.py"))
    return sorted({name for text in texts for name in PUBLISHED.findall(text)})


def nano_file() -> Path:
    """The weights of the embedded backbone."""
    return Path(str(files("hashprompt") / "assets" / "nano.safetensors"))
