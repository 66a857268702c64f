"""One file per method: its state, its phases, its prediction; its options are in `configs/`.

Every file of options is imported, so that all methods are known by name. Their code, and torch
with it, is imported when a method is first used.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from hashprompt.methods import configs
from hashprompt.methods.registry import METHODS, MethodInfo, known_methods, register

if TYPE_CHECKING:
    from hashprompt.methods.base import Method, Phase, Prediction

for _file in iter_modules(configs.__path__, f"{configs.__name__}."):
    import_module(_file.name)

__all__ = [
    "METHODS",
    "Method",
    "MethodInfo",
    "Phase",
    "Prediction",
    "known_methods",
    "register",
]


def __getattr__(name: str) -> Any:
    if name in ("Method", "Phase", "Prediction"):
        return getattr(import_module("hashprompt.methods.base"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
