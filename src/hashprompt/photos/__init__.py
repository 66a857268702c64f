"""A classifier that learns folders of photos as they arrive, and classifies pictures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashprompt.photos.answers import Answer
    from hashprompt.photos.continual import ContinualClassifier, cluster_photos
    from hashprompt.photos.onnx.model import OnnxClassifier
    from hashprompt.photos.results import EditResult, LearnResult
    from hashprompt.photos.sorting.sorter import SortResult

__all__ = [
    "Answer",
    "ContinualClassifier",
    "EditResult",
    "LearnResult",
    "OnnxClassifier",
    "SortResult",
    "cluster_photos",
]
_MODULES = {
    "Answer": "answers",
    "ContinualClassifier": "continual",
    "EditResult": "results",
    "LearnResult": "results",
    "OnnxClassifier": "onnx.model",
    "SortResult": "sorting.sorter",
    "cluster_photos": "continual",
}


def __getattr__(name: str) -> Any:
    # On first use, so that `hashprompt history` need not wait for what only `learn` needs.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
