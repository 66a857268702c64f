"""ConvPrompt: prompts are convolutions of an embedding that all tasks share.

Roy et al., CVPR 2024. Every task adds k × k kernels and keys; those of earlier tasks are frozen but
still take part. In the paper a language model decides the number of kernels of a task, from
descriptions of the classes; here the number is an option.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.backbone.vit import Tokens
from hashprompt.methods.base import TaskView, blocks_of
from hashprompt.methods.convprompt.config import ConvPromptConfig
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.parts.heads import cosine
from hashprompt.parts.slots import OrthogonalSlots, TaskSlots, uniform
from hashprompt.parts.trained_weights import Snapshot


class ConvPrompt(PromptTuning[ConvPromptConfig]):
    """Prompt of a block: Σ_j cos(g(x), key_j) · (kernel_j * shared), and that of the block before.

    x is the class token as it enters the block, g a projection that all blocks and tasks share.
    """

    needs_query = False
    keeps = ("kernels.frozen", "biases.frozen", "keys.frozen")
    stores = "prompts: shared kernels biases before; routers: keys projection"

    def __init__(self, config: ConvPromptConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.blocks = blocks_of(config.layers, backbone)
        k, dim, heads = config.kernel_size, backbone.dim, backbone.heads
        each = (len(self.blocks), 2, heads)  # blocks G; keys and values; heads H
        more = k - 1  # so that a prompt has its size after the convolution
        self.shared = nn.Parameter(
            torch.empty(*each, config.prompt_length + more, dim // heads + more).uniform_(-1, 1)
        )
        self.kernels = TaskSlots((*each, config.prompts_per_task, k, k), uniform(1 / k))
        self.biases = TaskSlots((*each, config.prompts_per_task), uniform(1 / k))
        self.projection = nn.Sequential(
            nn.Linear(dim, dim // 2), nn.ReLU(), nn.Linear(dim // 2, dim // 4)
        )
        self.keys = OrthogonalSlots(1, config.prompts_per_task, dim // 4)
        self.before = Snapshot(self.common())

    def common(self) -> dict[str, Tensor]:
        """What all tasks share and train on."""
        return {"shared": self.shared, **dict(self.projection.named_parameters())}

    def begin_task(self, task: TaskView) -> None:
        if self.keys.tasks:
            self.before.take(self.common())
        super().begin_task(task)
        for slots in (self.kernels, self.biases, self.keys):
            slots.add(copy_last=False)

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        kernels, biases = self.kernels.stacked(), self.biases.stacked()
        keys = self.keys.joined()[0]
        last: list[Tensor] = []  # the prompt of the block before, in this pass

        def of_block(place: int) -> Tokens:
            each = convolved(self.shared[place], kernels[:, place], biases[:, place])

            def prefix(x: Tensor) -> Tensor:
                weights = cosine(self.projection(x[:, 0]), keys)  # (B, J)
                own = torch.einsum("bj,jkld->bkld", weights, each)
                whole = own + last[0] if last else own
                last[:] = [own]
                return whole

            return prefix

        inject = Injection(prefix={block: of_block(i) for i, block in enumerate(self.blocks)})
        if not training or not self.before.taken:
            return PromptOutput(inject, {})
        before = self.before.tensors()
        moved = [(value - before[name]).abs().sum() for name, value in self.common().items()]
        return PromptOutput(inject, {"stability": self.config.stability * torch.stack(moved).sum()})

    def prompt_parameters(self) -> list[nn.Parameter]:
        own = [self.kernels.current, self.biases.current, self.keys.current]
        return [self.shared, *self.projection.parameters(), *own]


def convolved(shared: Tensor, kernels: Tensor, biases: Tensor) -> Tensor:
    """Every kernel over the embedding of its head: prompts (T · J, 2, L, D) of a block.

    Args:
        shared: (2, H, L + k − 1, D/H + k − 1), for keys and values.
        kernels: (T, 2, H, J, k, k).
        biases: (T, 2, H, J).
    """
    tasks, _, heads, count = biases.shape
    weight = kernels.permute(1, 2, 0, 3, 4, 5).flatten(0, 3)[:, None]  # (2 · H · T · J, 1, k, k)
    bias = biases.permute(1, 2, 0, 3).flatten()
    made = F.conv2d(shared.flatten(0, 1)[None], weight, bias, groups=2 * heads)[0]
    by_head = made.unflatten(0, (2, heads, tasks * count))  # (2, H, T · J, L, D/H)
    return by_head.permute(2, 0, 3, 1, 4).flatten(3)
