"""The ceiling: the same capacity, trained on the images of all tasks at once."""

from hashprompt.methods.base import MethodInfo, register
from hashprompt.methods.finetune import Finetune, FinetuneConfig


@register("joint", FinetuneConfig)
class Joint(Finetune):
    """Fine-tuning on everything: what a learner that forgets nothing could reach."""

    info = MethodInfo("Joint", "all tasks at once, same capacity: the ceiling", joint=True)
