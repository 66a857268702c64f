"""A method from its options, unless they ask for more than this machine has."""

from hashprompt.backbone.vit import Backbone
from hashprompt.errors import UserError, shortened
from hashprompt.methods.base import Method
from hashprompt.methods.config import MethodConfig
from hashprompt.methods.registry import find_method
from hashprompt.parts.budget import MemoryGuard


def build_method(name: str, config: MethodConfig, backbone: Backbone) -> Method:
    """A method that has learned nothing."""
    method_type = find_method(name).load()
    try:
        with MemoryGuard(f"The tensors of {name} with these options"):
            return method_type(config, backbone)
    except (RuntimeError, MemoryError, OverflowError) as error:  # sizes beyond any memory
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{name} cannot be built with these options: {shortened(reason, 200)}. Its sizes "
            "(experts, prompt_length, …) may be too large for this machine."
        ) from error
