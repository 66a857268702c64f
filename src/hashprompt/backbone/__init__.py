"""The frozen vision transformer: weights in, injection sites, features out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashprompt.backbone.names import available_backbones
    from hashprompt.backbone.preprocessing import Preprocessing
    from hashprompt.backbone.vit import Backbone, Injection
    from hashprompt.backbone.weights import load_backbone

__all__ = ["Backbone", "Injection", "Preprocessing", "available_backbones", "load_backbone"]
_MODULES = {
    "Backbone": "vit",
    "Injection": "vit",
    "Preprocessing": "preprocessing",
    "available_backbones": "names",
    "load_backbone": "weights",
}


def __getattr__(name: str) -> Any:  # on first use: names and catalogue do without torch
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
