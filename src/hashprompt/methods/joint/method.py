"""The upper reference: the same model, trained on the images of all tasks at once."""

from hashprompt.methods.finetune.method import PooledPrompts


class Joint(PooledPrompts):
    """Training on all tasks at once: the accuracy without forgetting."""
