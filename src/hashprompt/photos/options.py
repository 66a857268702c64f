"""Options of a classifier; imports no torch, so that a bad one is refused at once."""

from collections.abc import Mapping
from typing import Any

from hashprompt.errors import UserError
from hashprompt.methods.frames.configs.hide_pipeline import HeadsConfig
from hashprompt.methods.registry import default_preset, find_method, preset_options, presets
from hashprompt.options import Options, build, split_options
from hashprompt.options.run import RunOptions

DEFAULT_METHOD = "hash"


def config_of(method: str) -> type[HeadsConfig]:
    """The option group of a method that a classifier can use."""
    config = find_method(method).config
    if not issubclass(config, HeadsConfig):
        known = "`hash`, `hide`, `norga` and `gaussian-head`"
        raise UserError(
            f"`{method}` keeps no Gaussians of classes, which a classifier needs. Use {known}."
        )
    return config


def complete(values: Mapping[str, Any], config: type[Options]) -> dict[str, Any]:
    """Every option of the method and the run, checked, as JSON keeps it."""
    groups: tuple[type[Options], ...] = (config, RunOptions)
    parts = split_options(values, *groups)
    built = [build(group, part) for group, part in zip(groups, parts, strict=True)]
    return {k: v for options in built for k, v in options.model_dump(mode="json").items()}


def new_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a new classifier; what the user says goes first."""
    preset = "photos" if "photos" in presets(method) else default_preset(method)
    heads = {"tii": "discriminant", "align": "discriminant"}
    chosen = {**heads, **preset_options(method, preset, ""), **options}
    full = complete(chosen, config_of(method))
    if full["devices"] > 1:
        raise UserError("A classifier learns on one device: leave out `devices`.")
    return full


def refuse_bad_settings(settings: Mapping[str, Any], is_new: bool) -> None:
    """Refuse what a `learn` with these settings would refuse later.

    Args:
        settings: options, and beside them `method` and `seed`.
        is_new: whether the classifier has learned nothing yet; else its own options count too.
    """
    method = str(settings.get("method", DEFAULT_METHOD))
    options = {k: v for k, v in settings.items() if k not in ("method", "seed")}
    if is_new:
        new_options(method, options)
    else:
        split_options(options, config_of(method), RunOptions)
