"""Evaluation of a method on the test images of the tasks so far."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageTable
from hashprompt.data.streams.stream import Stream
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.metrics import average_after
from hashprompt.engine.passes import Passes, uncounted
from hashprompt.methods.base import Method, Prediction

Accuracy = list[list[float | None]]  # [i][t]: percent on stage i after stage t


class Evaluator:
    """Tests a method on the tasks of a stream so far."""

    def __init__(self, method: Method, stream: Stream, passes: Passes, callback: Callback) -> None:
        self.method, self.stream, self.passes = method, stream, passes
        self._fabric, self._callback = passes.fabric, callback

    @torch.no_grad()
    def predictions(self, table: ImageTable) -> Iterator[tuple[Prediction, Tensor]]:
        """Predictions and labels (B,) of a test set, by batch; every device predicts all images."""
        plain = self.passes.plain_features(table) if self.method.asks_plain else None
        for rows, images in self.passes.clean_batches(table):
            features = None if plain is None else plain[rows.to(plain.device)]
            with self._fabric.autocast():
                prediction = self.method.predict(images, features)
            yield prediction, table.labels[rows].to(self._fabric.device)

    def evaluate(self, stage: int, accuracy: Accuracy) -> tuple[dict[str, Any], int]:
        """Test on every stage so far, and write the column of this one.

        Returns:
            The entry of `after_task`, and the number of tested images.
        """
        self.method.eval()
        stream, last = self.stream, stage + 1
        # A test set shared by all stages is tested once.
        tested = stream.stages[:1] if stream.shared_test else stream.stages[:last]
        images = sum(len(task.test) for task in tested)
        self._callback.on_phase_start(stage, "evaluate", images, 0)
        count = Counter[str]()  # of images, and of correct predictions by kind
        for task in tested:
            before = count["correct"]
            for prediction, labels in self.predictions(task.test):
                count["images"] += len(labels)
                count["correct"] += int((prediction.logits.argmax(1) == labels).sum())
                if prediction.first_guess is not None:
                    count["first_guess"] += int((prediction.first_guess == labels).sum())
                if prediction.task is not None:
                    count["task"] += int((prediction.task == task.index).sum())
                self._callback.on_images_tested(count["images"])
            percent = 100 * (count["correct"] - before) / len(task.test)
            for row in range(last) if stream.shared_test else (task.index,):
                accuracy[row][stage] = percent
        self.method.train()
        share = {kind: 100 * number / images for kind, number in count.items()}
        has_new_classes = not (stream.shared_test or stream.joint_of)
        entry = {
            "task": stage,
            "average": average_after(accuracy, stage),
            "new_classes": accuracy[stage][stage] if has_new_classes else None,
            "tii_accuracy": share.get("first_guess"),
            "task_inference": None if stream.shared_test else share.get("task"),
        }
        column = [row[stage] for row in accuracy[:last]]
        self._callback.on_evaluation_end({**entry, "accuracy": column}, len(stream.stages))
        return entry, images

    @torch.no_grad()
    def drift(self, task: int) -> dict[str, float]:
        """Mean distance of stored means of old classes from their true means."""
        self.method.eval()
        distances = []  # (C,) of each old task
        with uncounted(self.passes.backbone.model.passes):
            for data in self.stream.tasks[:task]:
                stored = self.method.stored_classes(data.index)
                if stored is not None and len(data.train):
                    see = partial(self.method.current_features, task=data.index)
                    now = self.passes.map(data.train, see)
                    distances.append(stored.distances(now, data.train.labels.to(now.device)))
        self.method.train()
        return {"drift": float(torch.cat(distances).mean())} if distances else {}
