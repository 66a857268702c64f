"""One folder per method: `config.py` (options), `method.py` (the method), `presets.yaml`.

Every `config.py` is imported here, so that all methods are known by name. The code of a method, and
torch with it, is imported when the method is first used.
"""

from importlib import import_module
from pkgutil import iter_modules

from hashprompt.methods.config import MethodConfig
from hashprompt.methods.registry import METHODS, known_methods, register

for _folder in iter_modules(__path__, f"{__name__}."):
    if _folder.ispkg and not _folder.name.endswith(".frames"):
        import_module(f"{_folder.name}.config")

__all__ = ["METHODS", "MethodConfig", "known_methods", "register"]
