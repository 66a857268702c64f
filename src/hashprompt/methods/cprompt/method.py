"""CPrompt: prompts of each task, trained under what testing will bring.

Gao et al., CVPR 2024. At test time all classifiers compete, and the chosen prompts may be those of
another task; so the prompts train against old classifiers (CCL), and the classifier trains under
the prompts of any task (PCL).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Method, Phase, Prediction, TaskView, blocks_of
from hashprompt.methods.cprompt.config import CPromptConfig
from hashprompt.methods.frames.prompt_tuning import tuning_phase
from hashprompt.parts.cells import Cells
from hashprompt.parts.heads import cosine
from hashprompt.parts.slots import ClassRows, TaskClassifiers, TaskSlots, orthogonal_to, uniform


class CPrompt(Method[CPromptConfig]):
    """Task prompts found by class keys, with a classifier for each task."""

    keeps = (
        *("cells.", "prompts.frozen", "keys.frozen"),
        *("classifiers.weight.frozen", "classifiers.bias.frozen"),
    )
    stores = "routers: keys; head: classifiers"

    def __init__(self, config: CPromptConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.blocks = blocks_of(config.layers, backbone)
        dim = backbone.dim
        shape = (len(self.blocks), config.prompt_length, dim)
        self.cells = Cells()
        self.prompts = TaskSlots(shape, uniform(1 / math.sqrt(dim)))
        self.keys = ClassRows(dim)
        self.classifiers = TaskClassifiers(dim)  # w_1 … w_t
        self.auxiliary = TaskClassifiers(dim)  # of the current task, for the prompts only

    def begin_task(self, task: TaskView) -> None:
        count = len(task.classes)
        self.cells.add(task.index, task.classes)
        self.prompts.add(copy_last=True)
        self.keys.add(orthogonal_to(self.keys.joined().detach()[None], count)[0])
        self.classifiers.add(count)
        self.auxiliary = TaskClassifiers(self.backbone.dim)
        self.auxiliary.add(count)

    def phases(self, task: TaskView) -> list[Phase]:
        prompts = [self.prompts.current, self.keys.current]
        heads = [*self.classifiers.current(), *self.auxiliary.current()]
        return [tuning_phase(self.config, lambda batch: self._step(batch, task), prompts, heads)]

    def end_task(self, task: TaskView) -> None:
        self.auxiliary = TaskClassifiers(self.backbone.dim).to(self.device)  # no longer needed

    def features(self, tokens: Tensor, task: Tensor) -> Tensor:
        """CLS before the final norm, (B, D), under the prompts of the tasks (B,)."""
        chosen = self.prompts.stacked()[task].unbind(1)
        inject = Injection(tokens=dict(zip(self.blocks, chosen, strict=True)))
        return self.backbone.encode(tokens, inject, norm=False)

    def key_scores(self, tokens: Tensor) -> Tensor:
        """Cosines (B, C) of the frozen CLS before the final norm with all class keys."""
        with torch.no_grad():
            query = self.backbone.encode(tokens, norm=False)
        return cosine(query, self.keys.joined())

    def _step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        tokens = self.backbone.embed(batch.inputs)
        cell = self.cells.of(batch.labels, task.index)
        in_task = self.cells.task == task.index
        local = cell - len(self.keys.frozen)  # place in the task's own classifiers

        now = torch.full_like(cell, task.index)
        features = self.features(tokens, now)
        losses = {"auxiliary": F.cross_entropy(self.auxiliary(features), local)}
        config = self.config
        if task.index and config.consistency:
            every, tasks = self.classifiers(features), self.cells.task
            ccl = classifier_consistency(every, tasks, config.smoothing, config.margin)
            losses["ccl"] = config.consistency * ccl
        losses["keys"] = F.cross_entropy(self.key_scores(tokens), cell)
        drawn = torch.randint(task.index + 1, cell.shape, device=cell.device)
        logits = self.classifiers(self.features(tokens, drawn))[:, in_task]
        losses["pcl"] = F.cross_entropy(logits, local)
        return losses

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        tokens = self.backbone.embed(images)
        best = self.key_scores(tokens).argmax(1)  # `plain` is after the final norm
        task = self.cells.task[best]
        logits = self.classifiers(self.features(tokens, task))
        return Prediction(self.cells.to_classes(logits), task, self.cells.label[best])


def classifier_consistency(
    logits: Tensor, tasks: Tensor, smoothing: float, margin: float
) -> Tensor:
    """CCL: where an old classifier is as confident as the new one, its output is smoothed.

    The mean over old tasks k of H(softmax(z_k / τ), softmax(z_k)), the first of which is a
    constant. τ is 1 (and so the gradient nothing) for images with max z_t > max z_k + margin.

    Args:
        logits: (B, C) of all classifiers.
        tasks: (C,) task of each output; the largest is the current one.
        smoothing: τ of the other images.
        margin: lead of the new classifier that is enough.
    """
    current = int(tasks.max())
    new = logits[:, tasks == current].amax(1)
    terms = []
    for k in range(current):
        old = logits[:, tasks == k]
        ahead = new > old.amax(1) + margin
        temperature = torch.where(ahead, 1.0, smoothing)[:, None]
        terms.append(F.cross_entropy(old, (old / temperature).softmax(1).detach()))
    return torch.stack(terms).mean()
