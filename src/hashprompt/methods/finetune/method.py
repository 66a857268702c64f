"""The floor: prompts and head trained task after task with no protection."""

from hashprompt.methods.finetune.pooled import PooledPrompts


class Finetune(PooledPrompts):
    """Sequential training: what a learner that protects nothing keeps."""
