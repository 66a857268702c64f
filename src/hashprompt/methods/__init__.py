"""One folder per method: `config.py` (options), `method.py` (the method), `presets.yaml`.

Every `config.py` is imported here, so that all methods are known by name. The code of a method, and
torch with it, is imported when the method is first used.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from hashprompt.methods.config import MethodInfo
from hashprompt.methods.registry import METHODS, known_methods, register

if TYPE_CHECKING:
    from hashprompt.methods.base import Method, Phase, Prediction

for _folder in iter_modules(__path__, f"{__name__}."):
    if _folder.ispkg and not _folder.name.endswith(".frames"):
        import_module(f"{_folder.name}.config")

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
