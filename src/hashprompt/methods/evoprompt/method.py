"""EvoPrompt: small networks that write the prompts, fused with what they were before each task.

Kurniawan et al., AAAI 2024. After a task the memory that was trained on it (working) is aligned by
optimal transport with the memory before it (reference), and the two are averaged node by node:
nodes that matter to the new task move further.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.errors import UserError
from hashprompt.methods.base import Batch, Phase, Prediction, TaskView, blocks_of
from hashprompt.methods.evoprompt.config import EvoPromptConfig
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.parts.cells import Cells
from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.precision import exact
from hashprompt.parts.slots import uniform

# Buffers that are empty between tasks: attributions to the task, and the memory before it.
# What is known during a task alone, with the number of its axes.
OF_ONE_TASK = {"fresh_hidden": 2, "fresh_output": 2, "reference_inner": 3, "reference_outer": 3}

TINY = 1e-9
REMEMBERED = ("prototypes", "known_hidden", "known_output")  # of all tasks


class PromptMemory(nn.Module):
    """A network without biases for each of K prompted blocks: query -> ReLU -> L tokens.

    Args:
        blocks: K.
        hidden: H.
        length: L.
        dim: D.
    """

    def __init__(self, blocks: int, hidden: int, length: int, dim: int) -> None:
        super().__init__()
        inner, outer = torch.empty(blocks, hidden, dim), torch.empty(blocks, length * dim, hidden)
        self.inner = nn.Parameter(uniform(1 / math.sqrt(dim))(inner))
        self.outer = nn.Parameter(uniform(1 / math.sqrt(hidden))(outer))

    def forward(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden nodes (B, K, H) and output nodes (B, K, L·D) for queries (B, D)."""
        hidden = torch.einsum("bd,khd->bkh", query, self.inner).relu()
        return hidden, torch.einsum("bkh,koh->bko", hidden, self.outer)


class EvoPrompt(PromptTuning):
    """Prompts written by a memory that evolves from task to task."""

    keeps = ("cells.", "prototypes")
    stores = "prompts: memory; statistics: prototypes known_hidden known_output"
    config: EvoPromptConfig

    def __init__(self, config: EvoPromptConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        if backbone.dim % config.subspace:
            raise UserError(f"subspace={config.subspace} must divide the width {backbone.dim}.")
        self.blocks = blocks_of(config.layers, backbone)
        self.memory = PromptMemory(
            len(self.blocks), config.hidden, config.prompt_length, backbone.dim
        )
        self.cells = Cells()
        # (M, D) mean plain feature of every cell
        self.prototypes: Tensor = nn.Buffer(torch.zeros(0, backbone.dim))
        # How much each node matters to the tasks before, (K, H) and (K, L·D).
        inner, outer = self.memory.inner.detach(), self.memory.outer.detach()
        self.known_hidden: Tensor = nn.Buffer(torch.zeros_like(inner[..., 0]))
        self.known_output: Tensor = nn.Buffer(torch.zeros_like(outer[..., 0]))
        for name, axes in OF_ONE_TASK.items():
            self.register_buffer(name, torch.zeros([0] * axes))
        self.fresh_hidden: Tensor
        self.fresh_output: Tensor
        self.reference_inner: Tensor
        self.reference_outer: Tensor

    def begin_task(self, task: TaskView) -> None:
        self.cells.add(task.index, task.classes)
        self.head.grow(len(self.cells.task))
        self.reference_inner = self.memory.inner.detach().clone()
        self.reference_outer = self.memory.outer.detach().clone()

    def phases(self, task: TaskView) -> list[Phase]:
        align = [Phase("align", work=self._align)] if task.index else []
        return [
            Phase("prototypes", work=lambda: self._compose_head(task)),
            *super().phases(task),
            Phase("attribution", work=lambda: self._attribute(task)),
            *align,
            Phase("fuse", work=lambda: self._fuse(first=task.index == 0)),
        ]

    # Training and prediction. --------------------------------------------------------------

    def query(self, tokens: Tensor) -> Tensor:
        """Plain CLS before the final norm, (B, D)."""
        with torch.no_grad():
            return self.backbone.encode(tokens, norm=False)

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        _, written = self.memory(query)
        of_blocks = written.unflatten(2, (-1, self.backbone.dim)).unbind(1)
        return PromptOutput(Injection(tokens=dict(zip(self.blocks, of_blocks, strict=True))), {})

    def prompt_parameters(self) -> list[nn.Parameter]:
        return list(self.memory.parameters())

    def allowed(self, task: TaskView) -> Tensor:
        return self.cells.task == task.index

    def _step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        cells = self.cells.of(batch.labels, task.index)
        return super()._step(Batch(batch.inputs, cells), task)

    def _classify(self, tokens: Tensor, query: Tensor) -> Tensor:
        """Logits (B, C); a class of several domains gets the mean of its outputs."""
        inject = self.prompt(tokens, query, training=False).inject
        return self.cells.to_classes(self.head(self.features(tokens, inject)), "mean")

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        tokens = self.backbone.embed(images)
        return Prediction(self._classify(tokens, self.query(tokens)))  # `plain` is normed

    # What happens around a task. -----------------------------------------------------------

    @torch.no_grad()
    def _compose_head(self, task: TaskView) -> None:
        """Prototypes of the new cells; their rows of the head are composed of older ones."""
        features, old = task.features(), len(self.prototypes)
        new = torch.stack([features[task.labels == label].mean(0) for label in task.classes])
        if old:
            rows = self.head.weight
            composed = compose(
                new.to(rows),
                old=self.prototypes,
                rows=rows[:old],
                subspace=self.config.subspace,
                temperature=self.config.temperature,
            )
            rows[old:] = composed
        grow_buffer(self, "prototypes", new)

    def _attribute(self, task: TaskView) -> None:
        """Mean activation of every node over the training images that are classified rightly."""

        def look(images: Tensor) -> Tensor:
            tokens = self.backbone.embed(images)
            query = self.query(tokens)
            answer = self._classify(tokens, query).argmax(1, keepdim=True)
            return torch.cat((query.float(), answer), 1)

        seen = task.map(look)
        query, right = seen[:, :-1], seen[:, -1] == task.labels
        # No image right: no node matters to this task.
        count = right.sum().clamp(min=1)
        totals = [torch.zeros_like(self.known_hidden), torch.zeros_like(self.known_output)]
        with torch.no_grad():
            for part in query[right].split(64):
                for total, nodes in zip(totals, self.memory(part), strict=True):
                    total += nodes.relu().sum(0)
        self.fresh_hidden, self.fresh_output = (total / count for total in totals)

    @torch.no_grad()
    def _align(self) -> None:
        """The working memory and its attributions, rearranged to fit the reference."""
        memory = self.memory
        for k in range(len(self.blocks)):
            inner, outer = memory.inner[k].clone(), memory.outer[k].clone()
            hidden, output = plans(inner, outer, self.reference_inner[k], self.reference_outer[k])
            memory.inner[k] = hidden.T @ inner
            memory.outer[k] = output.T @ outer @ hidden
            self.fresh_hidden[k] = self.fresh_hidden[k] @ hidden
            self.fresh_output[k] = self.fresh_output[k] @ output

    @torch.no_grad()
    def _fuse(self, first: bool) -> None:
        """A memory between reference and working one; what mattered so far is remembered."""
        inner, outer, share = self.memory.inner, self.memory.outer, self.config.fusion
        hidden = self.fresh_hidden, self.known_hidden
        output = self.fresh_output, self.known_output
        if not first:
            inner.copy_(fuse(self.reference_inner, inner, *hidden, share))
            outer.copy_(fuse(self.reference_outer, outer, *output, share))
        self.known_hidden, self.known_output = torch.maximum(*hidden), torch.maximum(*output)
        for name, axes in OF_ONE_TASK.items():
            setattr(self, name, torch.zeros([0] * axes, device=self.device))


def compose(new: Tensor, old: Tensor, rows: Tensor, subspace: int, temperature: float) -> Tensor:
    """Rows for new classes, each piece an average of the old rows of classes alike in that piece.

    Args:
        new: (N, D) prototypes of new classes.
        old: (M, D) prototypes of old classes.
        rows: (M, D) of the old classes.
        subspace: S, width of a piece; likeness is the cosine there.
        temperature: of the softmax over old classes.

    Returns:
        (N, D).
    """
    new, old, rows = (x.unflatten(1, (-1, subspace)) for x in (new, old, rows))  # (…, D/S, S)
    likeness = torch.einsum("nps,mps->pnm", F.normalize(new, dim=2), F.normalize(old, dim=2))
    return torch.einsum("pnm,mps->nps", (likeness / temperature).softmax(2), rows).flatten(1)


def plans(
    inner: Tensor, outer: Tensor, reference_inner: Tensor, reference_outer: Tensor
) -> tuple[Tensor, Tensor]:
    """Which working nodes make up each reference node: hidden (H, H) and output (O, O).

    Columns sum to 1. Hidden nodes are matched first; output nodes are compared when their weights
    already belong to the hidden nodes of the reference.

    Args:
        inner: (H, D) of the working memory.
        outer: (O, H) of the working memory.
        reference_inner: (H, D).
        reference_outer: (O, H).
    """
    hidden = transport_plan(inner, reference_inner, mass(inner))
    return hidden, transport_plan(outer @ hidden, reference_outer, mass(outer))


def transport_plan(rows: Tensor, reference: Tensor, masses: Tensor) -> Tensor:
    """The cheapest way (n, m) to move the masses of rows onto those of a reference.

    Args:
        rows: (n, d).
        reference: (m, d); the cost is the squared distance at unit length.
        masses: (n,) of the rows, sum 1.

    Returns:
        Shares of the rows in each row of the reference: columns sum to 1.
    """
    import ot  # type: ignore[import-untyped]  # on use: nothing else needs it

    problem = masses, mass(reference), squared_distance(rows, reference)
    plan = torch.from_numpy(ot.emd(*(x.cpu().numpy() for x in problem), numItermax=10_000_000))
    return (plan / plan.sum(0)).to(rows)


def mass(rows: Tensor) -> Tensor:
    """Share (n,) of each row in the absolute sum of a matrix (n, d)."""
    norms = exact(rows).abs().sum(1) + TINY
    return norms / norms.sum()


def squared_distance(rows: Tensor, others: Tensor) -> Tensor:
    """Squared distances (n, m) of rows (n, d) and (m, d) at unit length."""
    rows, others = F.normalize(exact(rows), dim=1), F.normalize(exact(others), dim=1)
    return torch.cdist(rows, others).square()


def min_max(values: Tensor) -> Tensor:
    """Values (K, n) brought to 0 … 1 in each row."""
    low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
    return (values - low) / (high - low).clamp(min=TINY)


def fuse(reference: Tensor, working: Tensor, fresh: Tensor, known: Tensor, share: float) -> Tensor:
    """θ = θ_ref + w ⊙ (θ − θ_ref), with w = α + α · (fresh − known) for each node.

    Args:
        reference: (K, n, d) weights into n nodes, before the task.
        working: (K, n, d) after it, aligned.
        fresh: (K, n) how much nodes matter to the task; scaled to 0 … 1 here.
        known: (K, n) the same for the tasks before.
        share: α.
    """
    step = share + share * (min_max(fresh) - min_max(known))
    return reference + step[..., None] * (working - reference)
