"""How far stored class means are from where old classes are: for analysis alone."""

from pathlib import Path
from typing import Any

import pytest
import torch

import hashprompt
from hashprompt.parts.gaussians import StoredClasses
from hashprompt.report.measures import drift_by_task
from hashprompt.runs import benchmark
from hashprompt.runs.plan import stored_plan

SMALL: dict[str, Any] = {
    **{"stream": "digits", "tasks": 3, "classes": 6, "train_per_class": 8, "test_per_class": 5},
    **{"epochs": 2, "batch_size": 16, "quiet": True},
}
PROMPTS: dict[str, Any] = {"tii_epochs": 1, "align_epochs": 1}


def test_distances_are_in_spreads_of_the_class() -> None:
    stored = StoredClasses(
        labels=torch.tensor([4, 2]),
        means=torch.tensor([[1.0, 0.0], [0.0, 0.0]]),
        spreads=torch.tensor([2.0, 5.0]),
    )
    features = torch.tensor([[0.0, 6.0], [3.0, 5.0], [3.0, 3.0], [0.0, 2.0]])
    labels = torch.tensor([2, 4, 4, 2])
    # Class 4 is at (3, 4) now, √20 from (1, 0); class 2 at (0, 4).
    expected = torch.tensor([20**0.5 / 2, 4 / 5])
    torch.testing.assert_close(stored.distances(features, labels), expected)


def written_out(folder: Path) -> float:
    """The distance after the last task, from the learned model and the images themselves."""
    loaded = benchmark.prepare(stored_plan(folder)[0])
    trainer = loaded.trainer(folder)
    trainer.state.restore()
    learner: Any = loaded.method.eval()
    distances = []
    for task in loaded.stream.tasks[:-1]:
        views = trainer.views.clean(task.train.images[torch.arange(len(task.train))])
        which = torch.full((len(views),), task.index)
        with torch.no_grad():
            now = learner.prompted(learner.backbone.embed(views), which).numpy()
        for label in task.classes:  # in digits the cell of a class has its number
            own = now[(task.train.labels == label).numpy()]
            stored = learner.prompted_stats.means[label].numpy()
            spread = learner.prompted_stats.covariances()[label].trace().sqrt()
            distances.append(float(((own.mean(0) - stored) ** 2).sum() ** 0.5 / spread))
    return sum(distances) / len(distances)


def test_a_moving_pool_leaves_its_statistics_behind(tmp_path: Path) -> None:
    options = {**SMALL, **PROMPTS, "hdr": False, "hgm": False, "lr": 3.0}
    plain = hashprompt.run(out=tmp_path / "plain", **options)
    measured = hashprompt.run(out=tmp_path / "measured", measure_drift=True, **options)
    found = drift_by_task(measured.data)
    assert list(found) == [1, 2]  # after the first task there is nothing old
    assert found[2] == pytest.approx(written_out(tmp_path / "measured"), rel=1e-4)
    assert min(found.values()) > 0.01
    assert drift_by_task(plain.data) == {}
    # To look changes nothing, and is not counted.
    assert measured.accuracy == plain.accuracy
    assert measured.data["passes"].get("prompted") == plain.data["passes"]["prompted"]


@pytest.mark.parametrize(
    ("method", "options", "moves"),
    [("hide", PROMPTS, False), ("slca", {"lr": 0.05}, True), ("gaussian-head", {}, False)],
)
def test_what_is_stored_of_other_systems(
    method: str, options: dict[str, Any], moves: bool, tmp_path: Path
) -> None:
    """Isolated prompts and plain features stay where they were; a ViT that learns does not."""
    small = {k: v for k, v in SMALL.items() if method != "gaussian-head" or k != "epochs"}
    options = {**small, **options, "measure_drift": True}
    found = drift_by_task(hashprompt.run(method, out=tmp_path / "run", **options).data)
    assert list(found) == [1, 2]
    assert (found[2] > 0.01) is moves
    assert moves or found[2] < 1e-4
