"""The training loop: trains a method on a stream; can be killed at any moment."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hashprompt.backbone.preprocessing import LoadedBackbone
from hashprompt.data.streams.stream import Stream, TaskData
from hashprompt.engine.batches import EpochBatches
from hashprompt.engine.callbacks import Callback, Callbacks, StepEnd
from hashprompt.engine.evaluator import Evaluator
from hashprompt.engine.interrupts import StopRequest
from hashprompt.engine.optimization import NotFiniteError, Optimization
from hashprompt.engine.passes import CurrentTask, Passes
from hashprompt.engine.replicas import Replicas
from hashprompt.engine.run_state import RunState
from hashprompt.engine.seeding import seed_everything
from hashprompt.engine.views import views_of
from hashprompt.errors import UserError
from hashprompt.methods.base import Method, Phase, StepRecord
from hashprompt.options.run import RunOptions
from hashprompt.parts.growing import unfit_if_it_fails

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Trainer:
    """Trains on the tasks of a stream in order, and evaluates after each.

    `state` decides all results. It is saved after every phase and inside long phases. Random seeds
    follow from the seed and the position.

    Args:
        folder: where checkpoints go.
        callbacks: receive the events.
        resume_with: the command that resumes an interrupted run.
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
        self.state = RunState(
            method,
            backbone.model.passes,
            self.replicas,
            folder,
            len(stream.stages),
            options.checkpoint_minutes,
            self.stop,
        )
        self.views = views_of(options, backbone.preprocessing, stream)
        self.passes = Passes(backbone, self.views, options, fabric, self._on_images_seen)
        self.evaluator = Evaluator(method, stream, self.passes, self.callbacks)
        backbone.model.to(fabric.device)
        method.to(fabric.device)

    def fit(self) -> dict[str, Any]:
        """Train from the checkpoint to the end; returns the log."""
        self.state.restore()
        if self.replicas.is_first:
            self.state.checkpoints.prune()  # the last save may have been killed before that
        for note in self.stream.notes:
            self.callbacks.on_message(note)
        tasks, done = self.stream.tasks, self.state.position.task
        with self.callbacks.running(len(tasks), done), self.stop.listening():
            for data in tasks[done:]:
                self._learn(data)
        return self.state.log

    def _learn(self, data: TaskData) -> None:
        task = self.view_of(data)
        if self.state.position.phase < 0:
            seed_everything(self.seed, data.index, "begin")
            self.method.begin_task(task)
            self.method.to(self.fabric.device)
            self.state.advance(data.index, 0)
        phases = self.method.phases(task)
        for number in range(self.state.position.phase, len(phases)):
            self._carry_out(phases[number], data)
            self.state.advance(data.index, number + 1)
        self.state.clock.start(data.index, "evaluate")
        self.method.end_task(task)
        if len(data.test):  # else the caller tests
            self._evaluate(data.index)
        diagnostics = self.method.diagnostics(task)
        if self.options.measure_drift:
            diagnostics = {**diagnostics, **self.evaluator.drift(data.index)}
        self.state.log["diagnostics"].append({"task": data.index, **diagnostics})
        self.state.advance(data.index + 1, -1)
        self.callbacks.on_task_end(data.index)

    def _carry_out(self, phase: Phase, data: TaskData) -> None:
        """Carry out a phase from the current position."""
        self.state.clock.start(data.index, phase.name)
        seed_everything(self.seed, data.index, phase.seed_key)
        if phase.work is not None:
            self.callbacks.on_phase_start(data.index, phase.name, 0, 0)
            phase.work()
            self.state.clock.count(len(data.train))
        else:
            self._train(phase, data)

    def _train(self, phase: Phase, data: TaskData) -> None:
        optimization = Optimization(phase, self.method, self.replicas)
        self.state.load_moments(optimization)
        begin, images = self.state.position, 0
        for epoch in range(begin.epoch, phase.epochs):
            seeds = (self.seed, data.index, phase.seed_key, epoch)
            first = begin.step if epoch == begin.epoch else 0
            batches = EpochBatches(phase, data, self.passes, self.replicas, seeds, first > 0)
            steps = len(batches)
            if epoch == begin.epoch:
                total, done = phase.epochs * steps, epoch * steps + first
                self.callbacks.on_phase_start(data.index, phase.name, total, done)
            for step in range(first, steps):
                batch, rows = batches[step], batches.rows[step]
                rates = optimization.set_rates(epoch, step, steps)
                try:
                    loss, outputs = optimization.step(batch, len(rows))
                except NotFiniteError as error:
                    self._stop_for(error, optimization)
                if phase.record is not None:
                    self._record(phase, StepRecord(rows, epoch, outputs), step)
                images += len(rows)
                self.state.clock.count(len(rows))
                self.state.steps += 1
                self.state.move_to(epoch, step + 1)
                self.callbacks.on_step_end(
                    StepEnd(
                        task=data.index,
                        phase=phase.name,
                        epoch=epoch,
                        epochs=phase.epochs,
                        step=step,
                        steps=steps,
                        images=images,
                        loss=loss,
                        rates=rates,
                        total=self.state.steps,
                    )
                )
                self.state.save_if_due(optimization)
            self.state.move_to(epoch + 1, 0)

    def _record(self, phase: Phase, seen: StepRecord, step: int) -> None:
        """Give `phase.record` the whole batch of a step, the same on all devices."""
        assert phase.record is not None
        if seen.outputs is not None:
            outputs = self.replicas.whole(seen.outputs.detach(), len(seen.rows))
            seen = seen._replace(outputs=outputs)
        task = self.state.position.task
        seed_everything(self.seed, task, phase.seed_key, seen.epoch, step, "record")
        phase.record(seen._replace(rows=seen.rows.to(self.fabric.device)))

    def _stop_for(self, error: NotFiniteError, optimization: Optimization) -> NoReturn:
        self.state.save(optimization)
        at, phase = self.state.position, optimization.phase
        ways = ["a smaller lr"]  # that this run can change
        if self.options.precision != "32":
            ways.append("precision=32")
        if phase.clip is None and "clip" in type(self.method.config).model_fields:
            ways.append("clip=1")
        raise UserError(
            f"{error} in task {at.task + 1}, phase {phase.name}, epoch {at.epoch + 1}, step "
            f"{at.step + 1}. The state before this step is saved in "
            f"{self.state.checkpoints.folder}. Try {' or '.join(ways)}."
        ) from error

    def _evaluate(self, task: int) -> dict[str, Any]:
        stage = task + len(self.stream.stages) - len(self.stream.tasks)
        entry, images = self.evaluator.evaluate(stage, self.state.log["accuracy"])
        self.state.log["after_task"].append(entry)
        self.state.clock.count(images)
        return entry

    def evaluate(self) -> dict[str, Any]:
        """Test the model of a finished run again: a new last entry of `after_task`."""
        self.state.restore(only_needed=True)
        last = len(self.stream.tasks)
        if self.state.position.task < last:
            raise UserError(f"This run is not finished. Resume it: {self.stop.resume_with}")
        with self.callbacks.running(last, last), unfit_if_it_fails():
            entry = self._evaluate(last - 1)
        return {**entry, "accuracy": [row[-1] for row in self.state.log["accuracy"]]}

    def view_of(self, data: TaskData) -> CurrentTask:
        """The part of a task that a method may see."""
        return CurrentTask(data, self.passes)

    def _on_images_seen(self, done: int, total: int) -> None:
        # Several devices cannot agree to stop here: each may find other features in the cache.
        if self.replicas.count == 1 and self.stop.made:
            self.stop.obey()
        self.callbacks.on_images_seen(done, total)
