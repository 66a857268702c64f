"""One file per method: its options, its state, its phases, its prediction.

Every file here is imported, so a new method is one file with an `@register` line in it.
"""

from importlib import import_module
from pkgutil import iter_modules

from hashprompt.methods.base import METHODS, Method, MethodInfo, Phase, Prediction, register

for _file in iter_modules(__path__, f"{__name__}."):
    import_module(_file.name)

__all__ = ["METHODS", "Method", "MethodInfo", "Phase", "Prediction", "register"]
