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
from hashprompt.parts.trained_weights import Snapshot

TINY = 1e-9


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


class EvoPrompt(PromptTuning[EvoPromptConfig]):
    """Prompts written by a memory that evolves from task to task."""

    keeps = ("cells.", "prototypes")
    stores = "prompts: memory; statistics: prototypes known_hidden known_output"

    def __init__(self, config: EvoPromptConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        if backbone.dim % config.subspace:
            raise UserError(f"subspace={config.subspace} must divide the width {backbone.dim}.")
        self.blocks = blocks_of(config.layers, backbone)
        length, dim = config.prompt_length, backbone.dim
        self.memory = PromptMemory(len(self.blocks), config.hidden, length, dim)
        self.reference = Snapshot(dict(self.memory.named_parameters()))  # before the task
        self.cells = Cells()
        # (M, D) mean frozen feature of every cell
        self.prototypes: Tensor = nn.Buffer(torch.zeros(0, dim))
        # Attributions: how much each node matters to earlier tasks, (K, H) and (K, L·D).
        inner, outer = self.memory.inner.detach(), self.memory.outer.detach()
        self.known_hidden: Tensor = nn.Buffer(torch.zeros_like(inner[..., 0]))
        self.known_output: Tensor = nn.Buffer(torch.zeros_like(outer[..., 0]))

    def begin_task(self, task: TaskView) -> None:
        self.cells.add(task.index, task.classes)
        self.head.grow(len(self.cells.task))
        self.reference.take(dict(self.memory.named_parameters()))

    def phases(self, task: TaskView) -> list[Phase]:
        return [
            Phase("prototypes", work=lambda: self._compose_head(task)),
            *super().phases(task),
            Phase("fuse", work=lambda: self._update_memory(task)),
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
            config, known = self.config, (self.prototypes, rows[:old])
            rows[old:] = compose(new.to(rows), *known, config.subspace, config.temperature)
        grow_buffer(self, "prototypes", new)

    def _update_memory(self, task: TaskView) -> None:
        """A memory between reference and working one; attributions of all tasks are stored."""
        hidden, output = self.attributions(task)
        if task.index:
            self.align(hidden, output)
            self.fuse(hidden, output)
        self.known_hidden = torch.maximum(hidden, self.known_hidden)
        self.known_output = torch.maximum(output, self.known_output)
        self.reference.clear()

    @torch.no_grad()
    def attributions(self, task: TaskView) -> tuple[Tensor, Tensor]:
        """Mean activation of hidden (K, H) and output nodes (K, L·D) over correct answers."""

        def query_and_answer(images: Tensor) -> Tensor:
            tokens = self.backbone.embed(images)
            query = self.query(tokens)
            answer = self._classify(tokens, query).argmax(1, keepdim=True)
            return torch.cat((query.float(), answer), 1)

        found = task.map(query_and_answer)
        query, correct = found[:, :-1], found[:, -1] == task.labels
        totals = [torch.zeros_like(self.known_hidden), torch.zeros_like(self.known_output)]
        for part in query[correct].split(64):
            for total, nodes in zip(totals, self.memory(part), strict=True):
                total += nodes.relu().sum(0)
        count = correct.sum().clamp(min=1)  # without a correct answer no node matters
        return totals[0] / count, totals[1] / count

    @torch.no_grad()
    def align(self, hidden: Tensor, output: Tensor) -> None:
        """Rearrange the working memory and its attributions, in place, to fit the reference."""
        memory, reference = self.memory, self.reference.tensors()
        for k in range(len(self.blocks)):
            inner, outer = memory.inner[k].clone(), memory.outer[k].clone()
            inner_plan, outer_plan = plans(
                inner, outer, reference["inner"][k], reference["outer"][k]
            )
            memory.inner[k] = inner_plan.T @ inner
            memory.outer[k] = outer_plan.T @ outer @ inner_plan
            hidden[k] = hidden[k] @ inner_plan
            output[k] = output[k] @ outer_plan

    @torch.no_grad()
    def fuse(self, hidden: Tensor, output: Tensor) -> None:
        """Average reference and working memory node by node."""
        reference, share = self.reference.tensors(), self.config.fusion
        inner, outer = self.memory.inner, self.memory.outer
        inner.copy_(fused(reference["inner"], inner, hidden, self.known_hidden, share))
        outer.copy_(fused(reference["outer"], outer, output, self.known_output, share))


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


def fused(reference: Tensor, working: Tensor, fresh: Tensor, known: Tensor, share: float) -> Tensor:
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
