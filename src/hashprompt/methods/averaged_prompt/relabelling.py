"""Change the classes of a model without images: forget, merge, renumber."""

from collections.abc import Sequence

import torch

from hashprompt.methods.averaged_prompt.method import AveragedPrompt


def relabel(method: AveragedPrompt, ids: Sequence[int | None], photos: Sequence[int]) -> None:
    """Give classes other ids; with None a class is forgotten, with the same id two are merged.

    Rows of forgotten classes are removed everywhere. Gaussians of merged classes stay side by side:
    one of all their images would have its mean where none of them is, and photos of either would
    look unknown.

    Args:
        ids: new id of each class, from 0 without a gap.
        photos: that each class was learned from.
    """
    cells = method.cells
    method.head.regroup(_by_new_id(ids), torch.tensor(photos, device=method.device))
    kept = [cell for cell, label in enumerate(cells.label.tolist()) if ids[label] is not None]
    rows = torch.tensor(kept, device=method.device)
    tasks = cells.task[rows].unique()
    method.gaussians.select(rows)
    labels = [ids[label] for label in cells.label[rows].tolist()]
    cells.label = torch.tensor(labels, device=method.device)
    cells.task = torch.searchsorted(tasks, cells.task[rows])


def _by_new_id(ids: Sequence[int | None]) -> list[list[int]]:
    """The old ids behind each new one."""
    groups: dict[int, list[int]] = {}
    for old, new in enumerate(ids):
        if new is not None:
            groups.setdefault(new, []).append(old)
    return [groups[new] for new in range(len(groups))]
