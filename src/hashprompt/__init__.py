"""Train image classifiers on classes that arrive over time, on one frozen vision transformer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hashprompt.errors import UserError

if TYPE_CHECKING:
    from hashprompt.photos import Answer, ContinualClassifier, LearnResult, OnnxClassifier
    from hashprompt.runs.benchmark import Result, load_result, resume, run
    from hashprompt.sweeps import sweep

__all__ = [
    "Answer",
    "ContinualClassifier",
    "LearnResult",
    "OnnxClassifier",
    "Result",
    "UserError",
    "load_result",
    "resume",
    "run",
    "sweep",
]
__version__ = "0.1.0"
_MODULES = {
    **dict.fromkeys(("Result", "load_result", "resume", "run"), "runs.benchmark"),
    "sweep": "sweeps",
    **dict.fromkeys(("Answer", "ContinualClassifier", "LearnResult", "OnnxClassifier"), "photos"),
}


def __getattr__(name: str) -> Any:  # on first use: what these need takes seconds to import
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
