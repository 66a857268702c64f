"""What the engine shows a phase: which images of the task, and in how many views."""

from pathlib import Path

import torch

from hashprompt.engine.batches import EpochBatches
from hashprompt.engine.trainer import Trainer
from hashprompt.methods.base import Phase
from hashprompt.runs import benchmark


def trainer(folder: Path) -> Trainer:
    small = {"tasks": 2, "classes": 4, "train_per_class": 5, "test_per_class": 2}
    planned = benchmark.make_plan("simplecil", "digits", "nano", 0, "paper", small)
    return benchmark.prepare(planned).trainer(folder)


def test_a_phase_sees_the_rows_it_names_in_random_order(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    data, rows = run.stream.tasks[0], torch.tensor([7, 1, 4, 9, 2])
    phase = Phase("part", step=lambda batch: {}, batch_size=2, view="clean", rows=rows)
    seen = {}
    for epoch in (0, 1):
        batches = EpochBatches(phase, data, run.passes, run.replicas, (0, epoch))
        assert len(batches) == 3
        for step, chosen in enumerate(batches.rows):
            batch = batches[step]
            assert torch.equal(batch.labels, data.train.labels[chosen])
            expected = run.views.clean(data.train.images[chosen])  # type: ignore[arg-type]
            assert torch.equal(batch.inputs, expected)
        seen[epoch] = torch.cat(tuple(batches.rows)).tolist()
        assert sorted(seen[epoch]) == [1, 2, 4, 7, 9]
    assert seen[0] != seen[1]


def test_several_views_of_an_image_differ_and_follow_each_other(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    data = run.stream.tasks[0]
    phase = Phase("views", step=lambda batch: {}, batch_size=6, views=2)
    batches = EpochBatches(phase, data, run.passes, run.replicas, (0, 0))
    batch, rows = batches[0], batches.rows[0]
    first, second = batch.inputs.split(6)
    assert len(batch.labels) == 6
    assert not torch.equal(first, second)
    # Another window of the same image is nearer to it than any other image.
    gaps = torch.cdist(first.flatten(1), second.flatten(1))
    clean = run.views.clean(data.train.images[rows])  # type: ignore[arg-type]
    assert (gaps.diag() < torch.cdist(first.flatten(1), clean.flatten(1)).max(1).values).all()
    assert gaps.argmin(1).tolist() == list(range(6))
