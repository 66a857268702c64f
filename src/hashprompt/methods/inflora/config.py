"""Options of InfLoRA."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import UnscaledTuningConfig


@register(
    "inflora",
    paper="CVPR 2024, arXiv 2404.00228",
    code="liangyanshuo/InfLoRA",
    scenarios=("class",),
    family="adapters",
)
class InfLoRAConfig(UnscaledTuningConfig):
    """InfLoRA: low-rank changes of keys and values, orthogonal to the inputs of old tasks.

    Args:
        lr: learning rate of B, times batch_size/256 with scale_lr
        rank: r, directions that each task may use
        energy: λ, share of a task's input energy that later tasks must not change
        expected_tasks: T, number of tasks over which that share rises towards 1
    """

    lr: kinds.Positive = 5e-4
    schedule: kinds.Schedule = "coda"
    rank: kinds.Count = 10
    energy: kinds.OpenShare = 0.95
    expected_tasks: kinds.Count = 10

    def share(self, task: int) -> float:
        """ε_t = λ + (1 − λ)(t − 1)/T, of the task at this 0-based index."""
        passed = min(task, self.expected_tasks - 1) / self.expected_tasks
        return self.energy + (1 - self.energy) * passed
