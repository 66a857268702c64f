"""Image classifiers that keep learning: Hash and its relatives on one frozen ViT."""

from hashprompt.benchmark import Result, load_result, resume, run
from hashprompt.errors import UserError

__all__ = ["Result", "UserError", "load_result", "resume", "run"]
__version__ = "0.1.0"
