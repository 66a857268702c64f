"""A classifier that learns folders of photos as they arrive, and names what is in pictures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashprompt.classifier.answers import Answer
    from hashprompt.classifier.continual import ContinualClassifier, Learned
    from hashprompt.classifier.onnx_model import OnnxClassifier

__all__ = ["Answer", "ContinualClassifier", "Learned", "OnnxClassifier"]
_MODULES = {
    "Answer": "answers",
    "ContinualClassifier": "continual",
    "Learned": "continual",
    "OnnxClassifier": "onnx_model",
}


def __getattr__(name: str) -> Any:
    # On first use, so that `hashprompt history` need not wait for what only `learn` needs.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
