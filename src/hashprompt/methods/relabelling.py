"""Change which classes a learner knows, without any image: forget, merge, renumber."""

from collections.abc import Sequence

import torch

from hashprompt.methods.pipeline import Pipeline
from hashprompt.parts.gaussians import ClassGaussians


def relabel(method: Pipeline, ids: Sequence[int | None], counts: Sequence[int]) -> None:
    """Give classes other ids; with None a class is forgotten, with the same id two are merged.

    Rows of forgotten classes go everywhere, and what tasks that are left without any class had of
    their own. Gaussians that classes to be merged have of one task are pooled: what describing
    their images together would have given. Of different tasks they stay side by side, as if the
    class had been learned twice: each is of features under other prompts.

    Args:
        ids: new id of each class, from 0 without a gap.
        counts: (M,) images that each cell describes.
    """
    cells, weights = method.cells, torch.tensor(counts, device=method.device)
    merged: dict[tuple[int, ...], list[int]] = {}
    columns = zip(cells.task.tolist(), cells.label.tolist(), strict=True)
    for cell, (task, label) in enumerate(columns):
        new = ids[label]
        if new is not None:
            # Centres of several cells cannot be pooled, so those stay apart.
            own = (cell,) if method.config.statistics == "multi-centroid" else ()
            merged.setdefault((task, new, *own), []).append(cell)
    groups = list(merged.values())
    photos = weights.new_zeros(len(ids)).index_add(0, cells.label, weights)
    method.head.regroup(_by_new_id(ids), photos)
    tasks = torch.tensor(sorted({task for task, *_ in merged}), device=method.device)
    if method.config.tii == "sgd":
        by_task = method.config.tii_target == "task"
        method.tii.head.regroup([[task] for task in tasks.tolist()] if by_task else groups, weights)
    for part in method.children():
        if isinstance(part, ClassGaussians):
            part.regroup(groups, weights)
    cells.label = torch.tensor([label for _, label, *_ in merged], device=method.device)
    old_tasks = torch.tensor([task for task, *_ in merged], device=method.device)
    cells.task = torch.searchsorted(tasks, old_tasks)
    method.keep_tasks(tasks)


def _by_new_id(ids: Sequence[int | None]) -> list[list[int]]:
    """The old ids behind each new one."""
    groups: dict[int, list[int]] = {}
    for old, new in enumerate(ids):
        if new is not None:
            groups.setdefault(new, []).append(old)
    return [groups[new] for new in range(len(groups))]
