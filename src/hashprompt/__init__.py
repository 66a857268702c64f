"""Image classifiers that keep learning: Hash and its relatives on one frozen ViT."""

from hashprompt.benchmark import Result, load_result, resume, run
from hashprompt.classifier import Answer, ContinualClassifier, Learned
from hashprompt.errors import UserError

__all__ = [
    "Answer",
    "ContinualClassifier",
    "Learned",
    "Result",
    "UserError",
    "load_result",
    "resume",
    "run",
]
__version__ = "0.1.0"
