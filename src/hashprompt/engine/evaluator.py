"""Testing: what a method says of images, and how often it is right."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageTable
from hashprompt.data.streams.stream import Stream, TaskData
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.metrics import average_after
from hashprompt.engine.passes import Passes, uncounted
from hashprompt.methods.base import Method, Prediction

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Accuracy = list[list[float | None]]  # [i][t]: percent on stage i after stage t


class Tested(NamedTuple):
    """A batch of test images."""

    prediction: Prediction
    labels: Tensor  # (B,)


class Evaluator:
    """Tests a method on what a stream has brought so far."""

    def __init__(
        self,
        method: Method,
        stream: Stream,
        passes: Passes,
        fabric: "Fabric",
        callback: Callback,
    ) -> None:
        self.method, self.stream, self.passes = method, stream, passes
        self._fabric, self._callback = fabric, callback

    @torch.no_grad()
    def predictions(self, table: ImageTable) -> Iterator[Tested]:
        """Predictions of a test set, a batch at a time (on every device all)."""
        plain = self.passes.plain_features(table) if self.method.asks_plain else None
        for rows, images in self.passes.clean_batches(table):
            features = None if plain is None else plain[rows.to(plain.device)]
            with self._fabric.autocast():
                prediction = self.method.predict(images, features)
            yield Tested(prediction, table.labels[rows].to(self._fabric.device))

    def evaluate(self, stage: int, accuracy: Accuracy) -> tuple[dict[str, Any], int]:
        """Test on every stage so far, and write the column of this one.

        Returns:
            The entry of `after_task`, and how many images were tested.
        """
        self.method.eval()
        stream, last = self.stream, stage + 1
        # Where one test set serves all stages, it is asked once.
        tested = stream.stages[:1] if stream.shared_test else stream.stages[:last]
        images = sum(len(task.test) for task in tested)
        self._callback.on_phase_start(stage, "evaluate", images, 0)
        count = TestCount()
        for task in tested:
            before = count.right
            for batch in self.predictions(task.test):
                count.add(batch, task.index)
                self._callback.on_images_tested(count.images)
            percent = 100 * (count.right - before) / len(task.test)
            for row in range(last) if stream.shared_test else (task.index,):
                accuracy[row][stage] = percent
        self.method.train()
        has_new_classes = not (stream.shared_test or stream.is_joint)
        entry = {
            "task": stage,
            "average": average_after(accuracy, stage),
            "new_classes": accuracy[stage][stage] if has_new_classes else None,
            "tii_accuracy": count.share("first_guess"),
            "task_inference": None if stream.shared_test else count.share("task"),
        }
        column = [row[stage] for row in accuracy[:last]]
        self._callback.on_evaluation_end({**entry, "accuracy": column}, len(stream.stages))
        return entry, count.images

    @torch.no_grad()
    def drift(self, task: int) -> dict[str, float]:
        """Distance of stored means of old classes from the true ones, which no method knows."""
        self.method.eval()
        with uncounted(self.passes.backbone.model.passes):
            found = [self._distances(data) for data in self.stream.tasks[:task]]
        self.method.train()
        distances = [distance for distance in found if distance is not None]
        return {"drift": float(torch.cat(distances).mean())} if distances else {}

    def _distances(self, data: TaskData) -> Tensor | None:
        """Distances (C,) of the stored class means of a task; None without means or images."""
        stored = self.method.stored_classes(data.index)
        if stored is None or not len(data.train):
            return None
        see = partial(self.method.current_features, task=data.index)
        now = self.passes.map(data.train, see)
        return stored.distances(now, data.train.labels.to(now.device))


class TestCount:
    """Right answers over batches of test images."""

    __test__ = False  # no test of pytest's

    def __init__(self) -> None:
        self.images = self.right = 0
        self._guessed: dict[str, int] = {}

    def add(self, tested: Tested, task: int) -> None:
        prediction, labels = tested
        self.images += len(labels)
        self.right += int((prediction.logits.argmax(1) == labels).sum())
        for name, truth in (("first_guess", labels), ("task", task)):
            guess = getattr(prediction, name)
            if guess is not None:
                self._guessed[name] = self._guessed.get(name, 0) + int((guess == truth).sum())

    def share(self, name: str) -> float | None:
        """Percent of right guesses; None where the method does not guess."""
        return 100 * self._guessed[name] / self.images if name in self._guessed else None
