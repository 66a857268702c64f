"""A classifier that learns folders of photos as they arrive, and names what is in pictures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashprompt.photos.answers import Answer
    from hashprompt.photos.continual import ContinualClassifier, group_photos
    from hashprompt.photos.onnx.model import OnnxClassifier
    from hashprompt.photos.results import Edited, Learned
    from hashprompt.photos.sorting.sorter import Sorted

__all__ = [
    "Answer",
    "ContinualClassifier",
    "Edited",
    "Learned",
    "OnnxClassifier",
    "Sorted",
    "group_photos",
]
_MODULES = {
    "Answer": "answers",
    **dict.fromkeys(("ContinualClassifier", "group_photos"), "continual"),
    **dict.fromkeys(("Edited", "Learned"), "results"),
    "OnnxClassifier": "onnx.model",
    "Sorted": "sorting.sorter",
}


def __getattr__(name: str) -> Any:
    # On first use, so that `hashprompt history` need not wait for what only `learn` needs.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
