"""The one trainer: takes a method through a stream, and can be killed at any moment."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from hashprompt.backbone.preprocessing import LoadedBackbone
from hashprompt.data.reading.prefetch import Prefetch
from hashprompt.data.streams.stream import Stream, TaskData
from hashprompt.engine.callbacks import Callback, Callbacks, StepEnd
from hashprompt.engine.checkpoint import Checkpoints
from hashprompt.engine.clock import Clock
from hashprompt.engine.evaluator import Evaluator
from hashprompt.engine.interrupts import StopRequest
from hashprompt.engine.optimization import NotFiniteError, Optimization
from hashprompt.engine.passes import Passes
from hashprompt.engine.replicas import Replicas
from hashprompt.engine.seeding import seed_everything
from hashprompt.engine.views import views_of
from hashprompt.errors import UserError, shortened
from hashprompt.methods.base import Method, View
from hashprompt.methods.phase import Batch, Phase, Seen
from hashprompt.options.run import RunOptions
from hashprompt.parts.growing import is_finite, load_grown, unfit_if_it_fails

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass
class Position:
    """Where a run stands: the next thing to do is step `step` of epoch `epoch` of `phase`."""

    task: int = 0
    phase: int = -1  # before the task has begun
    epoch: int = 0
    step: int = 0


class CurrentTask:
    """The task in hand, as a method may see it: no old images, no test images."""

    def __init__(self, data: TaskData, passes: Passes, device: torch.device) -> None:
        self._data, self._passes = data, passes
        self.index, self.classes = data.index, data.classes
        self.labels = data.train.labels.to(device)

    def features(self) -> Tensor:
        return self._passes.plain_features(self._data.train)

    def map(self, function: Callable[[Tensor], Tensor], view: View = "clean") -> Tensor:
        return self._passes.map(self._data.train, function, view)

    def batches(self, size: int, view: View = "clean") -> Iterator[Batch]:
        return self._passes.batches(self._data.train, size, view)

    def raw(self, rows: Tensor) -> Tensor:
        return self._passes.raw(self._data.train, rows)

    def see(self, images: Tensor, view: View = "train") -> Tensor:
        return self._passes.see(images, view)


class Trainer:
    """Learns the tasks of a stream in order and evaluates after each.

    Everything that decides the numbers (position, parameters, optimiser, results so far) is in
    the checkpoint; all chance is derived from the seed and the position.

    Args:
        folder: where checkpoints go.
        callbacks: told what happens.
        resume_with: the command that goes on with an interrupted run.
    """

    def __init__(
        self,
        method: Method,
        stream: Stream,
        backbone: LoadedBackbone,
        options: RunOptions,
        fabric: "Fabric",
        folder: Path,
        seed: int,
        callbacks: Sequence[Callback] = (),
        resume_with: str | None = None,
    ) -> None:
        self.method, self.stream, self.backbone = method, stream, backbone
        self.options, self.fabric, self.seed = options, fabric, seed
        self.replicas = Replicas(fabric)
        self.callbacks = Callbacks(callbacks if self.replicas.is_first else ())
        self.stop = StopRequest(resume_with or f"hashprompt resume {folder}")
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.views = views_of(options, backbone.preprocessing, stream)
        self.passes = Passes(backbone, self.views, options, fabric, self._on_images_seen)
        self.evaluator = Evaluator(method, stream, self.passes, fabric, self.callbacks)
        self.position = Position()
        self.steps = 0  # of training, since the run began
        stages = len(stream.stages)
        self.log: dict[str, Any] = {
            "accuracy": [[None] * stages for _ in range(stages)],
            "after_task": [],
            "diagnostics": [],
            "timings": [],
            "remarks": [],
        }
        self.clock = Clock(self.log["timings"])
        self._saved_at = time.monotonic()
        self._saved_optimizer: dict[str, Tensor] = {}  # of the phase that is resumed
        backbone.model.to(fabric.device)
        method.to(fabric.device)

    # The algorithm. ------------------------------------------------------------------------

    def fit(self) -> dict[str, Any]:
        """Learn from where the checkpoint stands to the end; returns the log."""
        self.restore()
        for note in self.stream.notes:
            self.callbacks.on_message(note)
        tasks = self.stream.tasks
        start = replace(self.position)
        try:
            with self.callbacks.running(len(tasks), start.task), self.stop.listening():
                for data in tasks[start.task :]:
                    self._learn(data)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, IndexError, ValueError) as error:
            if self.position != start or start == Position():
                raise
            raise UserError(
                f"Cannot go on from the checkpoint in {self.checkpoints.folder}: "
                f"{type(error).__name__}: {shortened(error, 200)}. Its tensors may not fit each "
                "other, if it was changed."
            ) from error
        return self.log

    def view_of(self, data: TaskData) -> CurrentTask:
        """What a method may see of a task."""
        return CurrentTask(data, self.passes, self.fabric.device)

    def _learn(self, data: TaskData) -> None:
        task = self.view_of(data)
        if self.position.phase < 0:
            seed_everything(self.seed, data.index, "begin")
            self.method.begin_task(task)
            self.method.to(self.fabric.device)
            self._advance(data.index, 0)
        phases = self.method.phases(task)
        for number in range(self.position.phase, len(phases)):
            self.carry_out(phases[number], data)
            self._advance(data.index, number + 1)
        self.clock.start(data.index, "evaluate")
        self.method.end_task(task)
        if len(data.test):  # else whoever runs us tests for himself
            self._evaluate(data.index)
        diagnostics = {**self.method.diagnostics(task), **self._drift(data.index)}
        self.log["diagnostics"].append({"task": data.index, **diagnostics})
        self._advance(data.index + 1, -1)
        self.callbacks.on_task_end(data.index)

    def carry_out(self, phase: Phase, data: TaskData) -> None:
        """Do what one phase says, from the current position."""
        self.clock.start(data.index, phase.name)
        seed_everything(self.seed, data.index, phase.seed_key)
        if phase.work is not None:
            self.callbacks.on_phase_start(data.index, phase.name, 0, 0)
            phase.work()
            self.clock.count(len(data.train))
        else:
            self._train(phase, data)

    def _train(self, phase: Phase, data: TaskData) -> None:
        """Run a training phase from the current position."""
        optimization = Optimization(phase, self.method, self.fabric, self.replicas)
        optimization.load(self._saved_optimizer)
        self._saved_optimizer = {}
        position, images = self.position, 0
        for epoch in range(position.epoch, phase.epochs):
            steps, batches = self._batches(phase, data, epoch)
            if not images:
                done = epoch * steps + position.step
                self.callbacks.on_phase_start(data.index, phase.name, phase.epochs * steps, done)
            for step, batch, rows in batches:
                count = len(rows)
                rates = optimization.set_rates(epoch, step, steps)
                try:
                    loss, outputs = optimization.step(batch, count)
                except NotFiniteError as error:
                    self._stop_for(error, phase, optimization)
                if phase.record is not None:
                    self._record(phase, Seen(rows, epoch, outputs), step)
                images += count
                self.clock.count(count)
                self.steps += 1
                position.epoch, position.step = epoch, step + 1
                self.callbacks.on_step_end(
                    StepEnd(
                        *(data.index, phase.name, epoch, phase.epochs, step, steps),
                        *(images, loss, rates, self.steps),
                    )
                )
                self._save_if_due(optimization)
            position.epoch, position.step = epoch + 1, 0

    def _batches(
        self, phase: Phase, data: TaskData, epoch: int
    ) -> tuple[int, Iterator[tuple[int, Batch, Tensor]]]:
        """How many steps an epoch has; and from the current position on the number of each step,
        this device's share of its batch, and the rows of the whole batch."""
        where = (self.seed, data.index, phase.seed_key, epoch)
        seed_everything(*where)
        if phase.draw is not None:
            drawn = self._draw(phase.draw)
            rows = [torch.arange(len(batch.labels)) for batch in drawn]
            return len(drawn), self._from(where, rows, drawn.__getitem__)
        chosen = torch.arange(len(data.train)) if phase.rows is None else phase.rows.cpu()
        order = chosen[torch.randperm(len(chosen))].split(phase.batch_size)
        plain = phase.plain or phase.view == "features"
        features = self.passes.plain_features(data.train) if plain else None
        batches = Prefetch(data.train.images, [self.replicas.share(rows) for rows in order])

        def make(step: int) -> Batch:
            rows = self.replicas.share(order[step])
            labels = data.train.labels[rows].to(self.fabric.device)
            known = None if features is None else features[rows.to(features.device)]
            if phase.view == "features":
                assert known is not None
                return Batch(known, labels)
            images = batches[step].to(self.fabric.device)
            view = self.views.train if phase.view == "train" else self.views.clean
            seen = torch.cat([view(images) for _ in range(phase.views)])
            return Batch(seen, labels, known)

        return len(order), self._from(where, order, make)

    def _draw(self, draw: Callable[[], list[Batch]]) -> list[Batch]:
        """The batches of an epoch; its passes were counted already if the epoch is resumed."""
        with self._uncounted() if self.position.step else nullcontext():
            return draw()

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        """Passes that are not the method's own, or were counted already."""
        passes = self.backbone.model.passes
        counted = Counter(passes)
        yield
        passes.clear()
        passes.update(counted)

    def _from(
        self, where: tuple[int | str, ...], rows: Sequence[Tensor], make: Callable[[int], Batch]
    ) -> Iterator[tuple[int, Batch, Tensor]]:
        for step in range(self.position.step, len(rows)):
            # Augmentation and anything random in the step follow from the position alone.
            seed_everything(*where, step, self.replicas.rank)
            yield step, make(step), rows[step]

    def _record(self, phase: Phase, seen: Seen, step: int) -> None:
        """Tell a phase what a step was taken on: the whole batch, on all devices alike."""
        assert phase.record is not None
        if seen.outputs is not None:
            outputs = self.replicas.whole(seen.outputs.detach(), len(seen.rows))
            seen = seen._replace(outputs=outputs)
        seed_everything(self.seed, self.position.task, phase.seed_key, seen.epoch, step, "record")
        phase.record(seen._replace(rows=seen.rows.to(self.fabric.device)))

    def _evaluate(self, task: int) -> dict[str, Any]:
        stage = self.stream.stage_of(task)
        entry, images = self.evaluator.evaluate(stage, self.log["accuracy"])
        self.log["after_task"].append(entry)
        self.clock.count(images)
        return entry

    @torch.no_grad()
    def _drift(self, task: int) -> dict[str, float]:
        """How far stored means of old classes are from the truth, which no learner could know."""
        old = self.stream.tasks[:task] if self.options.measure_drift else ()
        self.method.eval()
        with self._uncounted():
            distances = [found for data in old if (found := self._distances(data)) is not None]
        self.method.train()
        return {"drift": float(torch.cat(distances).mean())} if distances else {}

    def _distances(self, data: TaskData) -> Tensor | None:
        """Of the means of a task's classes, (C,); None where nothing is stored or to be seen."""
        stored = self.method.stored_classes(data.index)
        if stored is None or not len(data.train):
            return None
        see = partial(self.method.current_features, task=data.index)
        now = self.passes.map(data.train, see)
        return stored.distances(now, data.train.labels.to(now.device))

    def evaluate(self) -> dict[str, Any]:
        """Test the learner of a finished run: the last entry of `after_task`, made anew."""
        self.restore()
        last = len(self.stream.tasks)
        if self.position.task < last:
            raise UserError(f"This run is not finished. Go on with: {self.stop.resume_with}")
        with self.callbacks.running(last, last), unfit_if_it_fails():
            entry = self._evaluate(last - 1)
        return {**entry, "accuracy": [row[-1] for row in self.log["accuracy"]]}

    # Saving and resuming. ------------------------------------------------------------------

    def start_from(self, tensors: dict[str, Tensor], task: int) -> None:
        """Begin with a learner of `task` tasks, unless this run has begun already."""
        if self.checkpoints.load() is None:
            load_grown(self.method, tensors)
            self.position.task = task
            self._save(None)

    def restore(self) -> None:
        """Take up the newest whole checkpoint, if there is one."""
        loaded = self.checkpoints.load()
        if loaded is None:
            return
        tensors, state = loaded
        self.position = Position(**state["position"])
        self.log = {"remarks": [], **state["log"]}  # older checkpoints have none
        self.steps = state.get("steps", 0)
        self.clock = Clock(self.log["timings"])
        self.backbone.model.passes.update(state["passes"])
        if state["precision"]:  # of the loss scaler
            self.fabric.strategy.precision.load_state_dict(state["precision"])
        learned = _part_of(tensors, "method/")
        if self.position.task == len(self.stream.tasks):
            # A finished learner may be asked with heads that need less of its state.
            learned = {k: v for k, v in learned.items() if k in self.method.state_dict()}
        load_grown(self.method, learned)
        self._saved_optimizer = {k: v for k, v in tensors.items() if k.startswith("optimizer/")}

    def _advance(self, task: int, phase: int) -> None:
        """A phase is over: stand at the start of the next one, on disk too."""
        self.position = Position(task, phase)
        self._save(None)
        if self.replicas.any(self.stop.made):
            self.stop.obey()

    def _save_if_due(self, optimization: Optimization) -> None:
        seconds = 60 * self.options.checkpoint_minutes
        late = self.replicas.is_first and time.monotonic() - self._saved_at >= seconds
        stop = self.replicas.any(self.stop.made)
        if stop or self.replicas.any(late):
            self._save(optimization)
        if stop:
            self.stop.obey()

    def _save(self, optimization: Optimization | None) -> None:
        self.clock.stop()
        learned = self.method.state_dict()
        if wrong := [name for name, tensor in learned.items() if not is_finite(tensor)]:
            raise UserError(
                f"Numbers of the learner are not finite (`{wrong[0]}`, of {len(wrong)}): it "
                "is not saved, and the checkpoint before stays. Try a smaller lr; if that does "
                "not help, it is a bug of the method."
            )
        tensors = {f"method/{k}": v for k, v in learned.items()}
        self.replicas.refuse_differences(tensors)
        if self.replicas.is_first:
            if optimization is not None:
                tensors |= optimization.tensors()
            state = {
                "position": asdict(self.position),
                "steps": self.steps,
                "log": self.log,
                "passes": dict(self.backbone.model.passes),
                "precision": self.fabric.strategy.precision.state_dict(),
            }
            self.checkpoints.save(tensors, state)
        self._saved_at = time.monotonic()

    def _stop_for(
        self, error: NotFiniteError, phase: Phase, optimization: Optimization
    ) -> NoReturn:
        self._save(optimization)
        at = self.position
        raise UserError(
            f"{error} in task {at.task + 1}, phase {phase.name}, epoch {at.epoch + 1}, step "
            f"{at.step + 1}. The state before this step is saved in {self.checkpoints.folder}. "
            f"{self._advice(phase)}"
        ) from error

    def _advice(self, phase: Phase) -> str:
        """What may help, of what this run can change."""
        ways = ["a smaller lr"]
        if self.options.precision != "32":
            ways.append("precision=32")
        if phase.clip is None and "clip" in type(self.method.config).model_fields:
            ways.append("clip=1")
        return f"Try {' or '.join(ways)}."

    def _on_images_seen(self, done: int, total: int) -> None:
        # Devices see different numbers of batches, so several cannot agree to stop here.
        if self.replicas.count == 1 and self.stop.made:
            self.stop.obey()
        self.callbacks.on_images_seen(done, total)


def _part_of(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
