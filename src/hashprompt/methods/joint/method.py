"""The ceiling: the same capacity, trained on the images of all tasks at once."""

from hashprompt.methods.finetune.method import PooledPrompts


class Joint(PooledPrompts):
    """Training on everything: what a learner that forgets nothing could reach."""
