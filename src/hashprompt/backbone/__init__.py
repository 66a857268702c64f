"""The frozen vision transformer: weights in, injection sites, features out."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashprompt.backbone.vit import Backbone, Injection

__all__ = ["Backbone", "Injection"]


def __getattr__(name: str) -> Any:  # on first use: names and catalogue do without torch
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hashprompt.backbone import vit

    return getattr(vit, name)
