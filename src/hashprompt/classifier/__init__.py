"""A classifier that learns folders of photos as they arrive, and names what is in pictures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashprompt.classifier.answers import Answer
    from hashprompt.classifier.continual import ContinualClassifier, group_photos
    from hashprompt.classifier.onnx_model import OnnxClassifier
    from hashprompt.classifier.outcomes import Edited, Learned
    from hashprompt.classifier.sorting import Sorted

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
    **dict.fromkeys(("Edited", "Learned"), "outcomes"),
    "OnnxClassifier": "onnx_model",
    "Sorted": "sorting",
}


def __getattr__(name: str) -> Any:
    # On first use, so that `hashprompt history` need not wait for what only `learn` needs.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
