"""Options of a classifier; imports no torch, so that a bad one is refused at once."""

from collections.abc import Mapping
from typing import Any

from hashprompt.errors import UserError
from hashprompt.methods.averaged_prompt.config import AveragedPromptConfig
from hashprompt.methods.registry import preset_options
from hashprompt.options import Options, build, split_options
from hashprompt.options.run import RunOptions

GROUPS: tuple[type[Options], ...] = (AveragedPromptConfig, RunOptions)


def complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of Averaged prompt and of a run, checked, as JSON keeps it."""
    parts = split_options(values, *GROUPS)
    built = [build(group, part) for group, part in zip(GROUPS, parts, strict=True)]
    return {k: v for options in built for k, v in options.model_dump(mode="json").items()}


def new_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a new classifier; what the user sets goes first."""
    full = complete({**preset_options("averaged-prompt", "photos", ""), **options})
    if full["devices"] > 1:
        raise UserError("A classifier learns on one device: leave out `devices`.")
    return full


def refuse_bad_settings(settings: Mapping[str, Any], is_new: bool) -> None:
    """Refuse what a `learn` with these settings would refuse later.

    Args:
        settings: options, and `seed`.
        is_new: whether the classifier has learned nothing yet; else its own options count too.
    """
    options = {k: v for k, v in settings.items() if k != "seed"}
    if is_new:
        new_options(options)
    else:
        split_options(options, *GROUPS)
