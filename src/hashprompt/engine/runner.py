"""The one trainer: takes a method through a stream, and can be killed at any moment."""

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from rich.markup import escape
from torch import Tensor

from hashprompt.backbone.weights import LoadedBackbone
from hashprompt.data.dataset import ImageTable, concatenate
from hashprompt.data.reading.prefetch import Prefetch
from hashprompt.data.streams.stream import Stream, TaskData
from hashprompt.engine.checkpoint import Checkpoints
from hashprompt.engine.metrics import average_after
from hashprompt.engine.passes import Passes
from hashprompt.engine.progress import RunProgress
from hashprompt.engine.seeding import seed_everything
from hashprompt.engine.settings import RunOptions
from hashprompt.errors import UserError
from hashprompt.methods.base import Batch, Method, Phase, Prediction, learning_rate_factor
from hashprompt.parts.growing import load_grown

if TYPE_CHECKING:
    from lightning_fabric import Fabric

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9),
}


class Interrupted(UserError):  # noqa: N818 (a request, not an error)
    """The user asked to stop; the state is saved."""


class CurrentTask:
    """The task in hand, as a method may see it: no old images, no test images."""

    def __init__(self, runner: "Runner", data: TaskData) -> None:
        self._runner, self._data = runner, data
        self.index, self.classes = data.index, data.classes
        self.labels = data.train.labels.to(runner.fabric.device)

    def features(self) -> Tensor:
        return self._runner.passes.plain_features(self._data.train)

    def map(
        self, function: Callable[[Tensor], Tensor], view: Literal["train", "clean"] = "clean"
    ) -> Tensor:
        return self._runner.passes.map(self._data.train, function, view)


class Runner:
    """Learns the tasks of a stream in order and evaluates after each.

    Everything that decides the numbers (position, parameters, optimiser, results so far) is in
    the checkpoint; all chance is derived from the seed and the position.
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
        quiet: bool = False,
        resume_with: str | None = None,
        titles: Mapping[str, str] | None = None,
    ) -> None:
        self.method, self.stream, self.backbone = method, stream, backbone
        self.resume_with = resume_with or f"hashprompt resume {folder}"  # told when interrupted
        self.options, self.fabric, self.seed = options, fabric, seed
        self.views = options.views(backbone.preprocessing, stream)
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.tasks = (merged(stream),) if method.info.joint else stream.tasks
        self.progress = RunProgress(len(self.tasks), quiet or not fabric.is_global_zero, titles)
        # Where the run stands: the next thing to do is step `step` of epoch `epoch` of `phase`.
        self.position = {"task": 0, "phase": -1, "epoch": 0, "step": 0}
        count = len(stream.tasks)
        self.log: dict[str, Any] = {
            "accuracy": [[None] * count for _ in range(count)],
            "after_task": [],
            "diagnostics": [],
            "timings": [],
        }
        self._clock: dict[str, Any] = {}  # the entry of the log that time goes to
        self._since = self._saved_at = time.monotonic()
        self._stop = False
        self.passes = Passes(backbone, self.views, options, fabric, self._looked)
        backbone.model.to(fabric.device)
        method.to(fabric.device)

    # The run. ------------------------------------------------------------------------------

    def start_from(self, tensors: dict[str, Tensor], task: int) -> None:
        """Begin with a learner of `task` tasks, unless this run has begun already."""
        if self.checkpoints.load() is None:
            load_grown(self.method, tensors)
            self.position["task"] = task
            self._save(None)

    def run(self) -> dict[str, Any]:
        """Learn from where the checkpoint stands to the end; returns the log."""
        optimizer_state = self._restore()
        for note in self.stream.notes:
            self.progress.say(escape(note))
        with self.progress, self._interruptible():
            for index in range(self.position["task"], len(self.tasks)):
                self._learn(self.tasks[index], optimizer_state)
                optimizer_state = {}
                self.progress.tasks_done(index + 1)
        return self.log

    def _learn(self, data: TaskData, optimizer_state: dict[str, Tensor]) -> None:
        task = CurrentTask(self, data)
        self.progress.tasks_done(data.index)
        if self.position["phase"] < 0:
            seed_everything(self.seed, data.index, "begin")
            self.method.begin_task(task)
            self.method.to(self.fabric.device)
            self._advance(data.index, 0)
        phases = self.method.phases(task)
        for number in range(self.position["phase"], len(phases)):
            phase = phases[number]
            self._start_clock(data.index, phase.name)
            seed_everything(self.seed, data.index, phase.name)
            if phase.work is not None:
                self.progress.phase(data.index, phase.name, 0)
                phase.work()
                self._clock["images"] += len(data.train)
            else:
                self._train(phase, data, optimizer_state)
            optimizer_state = {}
            self._advance(data.index, number + 1)
        self._start_clock(data.index, "evaluate")
        self._sum_accumulators(everywhere=True)
        self.method.end_task(task)
        if len(data.test):  # else whoever runs us tests for himself
            self._evaluate(data.index)
        self.log["diagnostics"].append({"task": data.index, **self.method.diagnostics()})
        self._leave_accumulators_to_first()
        self._advance(data.index + 1, -1)

    def _start_clock(self, task: int, phase: str) -> None:
        """Time from now on goes to this phase (on resume, to what it had before)."""
        timings = self.log["timings"]
        if not timings or (timings[-1]["task"], timings[-1]["phase"]) != (task, phase):
            timings.append({"task": task, "phase": phase, "seconds": 0.0, "images": 0})
        self._clock, self._since = timings[-1], time.monotonic()

    def _stop_clock(self) -> None:
        now = time.monotonic()
        if self._clock:
            self._clock["seconds"] = round(self._clock["seconds"] + now - self._since, 3)
        self._since = now

    # Training. -----------------------------------------------------------------------------

    def _train(self, phase: Phase, data: TaskData, optimizer_state: dict[str, Tensor]) -> None:
        """Run a training phase from the current position."""
        bare = OPTIMIZERS[phase.optimizer](phase.groups)
        _load_optimizer(bare, optimizer_state)
        rates = [group["lr"] for group in phase.groups]
        optimizer: Any = self.fabric.setup_optimizers(bare)
        position, images = self.position, 0
        for epoch in range(position["epoch"], phase.epochs):
            factor = learning_rate_factor(phase.schedule, epoch, phase.epochs)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            steps, batches = self._batches(phase, data, epoch)
            if not images:
                done = epoch * steps + position["step"]
                self.progress.phase(data.index, phase.name, phase.epochs * steps, done)
            for step, batch in batches:
                loss = self._step(phase, batch, optimizer)
                count = len(batch.labels) * self.fabric.world_size
                images += count
                self._clock["images"] += count
                position.update(epoch=epoch, step=step + 1)
                done = epoch * steps + step + 1
                self.progress.step(done, images, f"{epoch + 1}/{phase.epochs}", loss)
                self._save_if_due(optimizer)
            position.update(epoch=epoch + 1, step=0)

    def _batches(
        self, phase: Phase, data: TaskData, epoch: int
    ) -> tuple[int, Iterator[tuple[int, Batch]]]:
        """How many steps an epoch has, and its batches from the current position on."""
        where = (self.seed, data.index, phase.name, epoch)
        seed_everything(*where)
        if phase.draw is not None:
            drawn = phase.draw()
            return len(drawn), self._from(where, len(drawn), drawn.__getitem__)
        order = torch.randperm(len(data.train)).split(phase.batch_size)
        features = self.passes.plain_features(data.train) if phase.view == "features" else None
        batches = Prefetch(data.train.images, [self._own_share(rows) for rows in order])

        def make(step: int) -> Batch:
            rows = self._own_share(order[step])
            labels = data.train.labels[rows].to(self.fabric.device)
            if features is not None:
                return Batch(features[rows.to(features.device)], labels)
            images = batches[step].to(self.fabric.device)
            view = self.views.train if phase.view == "train" else self.views.clean
            return Batch(view(images), labels)

        return len(order), self._from(where, len(order), make)

    def _from(
        self, where: tuple[int | str, ...], steps: int, make: Callable[[int], Batch]
    ) -> Iterator[tuple[int, Batch]]:
        for step in range(self.position["step"], steps):
            # Augmentation and anything random in the step follow from the position alone.
            seed_everything(*where, step, self.fabric.global_rank)
            yield step, make(step)

    def _step(self, phase: Phase, batch: Batch, optimizer: Any) -> float:
        assert phase.step is not None
        counted = [tensor.clone() for tensor in self.method.accumulators()]
        optimizer.zero_grad()
        with self.fabric.autocast():
            losses = phase.step(batch)
        loss = torch.stack(list(losses.values())).sum()
        value = float(loss.detach())
        if not math.isfinite(value):
            for tensor, before in zip(self.method.accumulators(), counted, strict=True):
                tensor.copy_(before)  # the step is not taken, so its images do not count
            self._stop_for_nan(phase, losses, optimizer)
        if loss.requires_grad:
            self.fabric.backward(loss)
            parameters = [p for g in optimizer.param_groups for p in g["params"]]
            self._average_gradients(parameters)
            self.method.before_update(phase)
            if phase.clip is not None:
                self.fabric.clip_gradients(self.method, optimizer, max_norm=phase.clip)
            optimizer.step()
            self.method.after_update(phase)
        return value

    def _average_gradients(self, parameters: list[Tensor]) -> None:
        """Many devices: each saw its share of the batch. Prompts are small, so this is cheap."""
        if self.fabric.world_size > 1:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.copy_(self._all_reduce(parameter.grad, "mean"))

    def _all_reduce(self, tensor: Tensor, how: str) -> Tensor:
        reduced = self.fabric.all_reduce(tensor, reduce_op=how)
        assert isinstance(reduced, Tensor)
        return reduced

    def _own_share(self, rows: Tensor) -> Tensor:
        world, rank = self.fabric.world_size, self.fabric.global_rank
        return rows[rank::world] if len(rows) >= world else rows

    def _stop_for_nan(self, phase: Phase, losses: dict[str, Tensor], optimizer: Any) -> None:
        self._save(optimizer)
        told = ", ".join(f"{name}={float(value.detach()):g}" for name, value in losses.items())
        at = self.position
        raise UserError(
            f"The loss is not finite ({told}) in task {at['task'] + 1}, phase {phase.name}, epoch "
            f"{at['epoch'] + 1}, step {at['step'] + 1}. The state before this step is saved in "
            f"{self.checkpoints.folder}. Try a smaller lr, precision=32 or clip=1."
        )

    # Testing. ------------------------------------------------------------------------------

    def _evaluate(self, learned: int) -> None:
        """Test on every task learned so far."""
        self.method.eval()
        tasks = self.stream.tasks if self.method.info.joint else self.stream.tasks[: learned + 1]
        column = len(self.stream.tasks) - 1 if self.method.info.joint else learned
        shared = self.stream.shared_test  # then its accuracy stands for every task
        tasks = tasks[:1] if shared else tasks
        self.progress.phase(learned, "evaluate", sum(len(task.test) for task in tasks))
        counts = {"images": 0, "first_guess": 0, "task": 0}
        asked = {"first_guess": False, "task": False}
        for task in tasks:
            right = 0
            for prediction, labels in self.predictions(task.test):
                counts["images"] += len(labels)
                self.progress.step(counts["images"], counts["images"])
                right += int((prediction.logits.argmax(1) == labels).sum())
                for name, truth in (("first_guess", labels), ("task", task.index)):
                    guess = getattr(prediction, name)
                    if guess is not None and not (shared and name == "task"):
                        asked[name] = True
                        counts[name] += int((guess == truth).sum())
            for row in range(column + 1) if shared else (task.index,):
                self.log["accuracy"][row][column] = 100 * right / len(task.test)
        share = {n: 100 * counts[n] / counts["images"] if asked[n] else None for n in asked}
        entry = {
            "task": column,
            "average": average_after(self.log["accuracy"], column),
            "new_classes": None if shared else self.log["accuracy"][column][column],
            "tii_accuracy": share["first_guess"],
            "task_inference": share["task"],
        }
        self.log["after_task"].append(entry)
        told = f"task {column + 1}/{len(self.stream.tasks)}: average {entry['average']:.2f} %"
        if not self.method.info.joint and not shared:
            told += f", new classes {entry['new_classes']:.2f} %"
        if share["task"] is not None:
            told += f", task inference {share['task']:.1f} %"
        self.progress.say(told)
        self._clock["images"] += counts["images"]
        self.method.train()

    def evaluate_again(self) -> dict[str, Any]:
        """Test the learner of a finished run: the last entry of `after_task`, made anew."""
        self._restore()
        if self.position["task"] < len(self.tasks):
            raise UserError(
                f"This run is not finished. Go on with: hashprompt resume "
                f"{self.checkpoints.folder.parent}"
            )
        with self.progress:
            self._start_clock(len(self.tasks), "evaluate")
            self._evaluate(len(self.tasks) - 1)
        column = [row[-1] for row in self.log["accuracy"]]
        return {**self.log["after_task"][-1], "accuracy": column}

    @torch.no_grad()
    def predictions(self, table: ImageTable) -> Iterator[tuple[Prediction, Tensor]]:
        """Predictions of a test set with its labels, a batch at a time (on every device all)."""
        plain = self.passes.plain_features(table)
        for rows, images in self.passes.clean_batches(table):
            with self.fabric.autocast():
                prediction = self.method.predict(images, plain[rows.to(plain.device)])
            yield prediction, table.labels[rows].to(self.fabric.device)

    # Saving and resuming. ------------------------------------------------------------------

    def _advance(self, task: int, phase: int) -> None:
        """A phase is over: stand at the start of the next one, on disk too."""
        self.position.update(task=task, phase=phase, epoch=0, step=0)
        self._save(None)
        self._check_stop()

    def _save_if_due(self, optimizer: Any) -> None:
        # The first device's clock decides for all: they must save together.
        seconds = 60 * self.options.checkpoint_minutes
        due = self._stop or time.monotonic() - self._saved_at >= seconds
        if self.fabric.world_size > 1:
            due = self.fabric.broadcast(due)
        if due:
            self._save(optimizer)
            self._check_stop()

    def _save(self, optimizer: Any) -> None:
        self._sum_accumulators()
        self._stop_clock()
        if self.fabric.is_global_zero:
            tensors = {f"method/{k}": v for k, v in self.method.state_dict().items()}
            if optimizer is not None:
                tensors |= _optimizer_tensors(optimizer.state_dict())
            passes = dict(self.backbone.model.passes)
            state = {"position": self.position, "log": self.log, "passes": passes}
            self.checkpoints.save(tensors, state)
        self._saved_at = time.monotonic()

    def _sum_accumulators(self, everywhere: bool = False) -> None:
        """Many devices: what each counted goes to the first one, or for once to all."""
        if self.fabric.world_size > 1:
            for counted in self.method.accumulators():
                counted.copy_(self._all_reduce(counted.clone(), "sum"))
            if not everywhere:
                self._leave_accumulators_to_first()

    def _leave_accumulators_to_first(self) -> None:
        """What was summed must not be summed again."""
        if not self.fabric.is_global_zero:
            for counted in self.method.accumulators():
                counted.zero_()

    def _restore(self) -> dict[str, Tensor]:
        """Take up the newest whole checkpoint; returns the optimiser's part of it."""
        loaded = self.checkpoints.load()
        if loaded is None:
            return {}
        tensors, state = loaded
        self.position, self.log = state["position"], state["log"]
        self.backbone.model.passes.update(state["passes"])
        own = {k.removeprefix("method/"): v for k, v in tensors.items() if k.startswith("method/")}
        if self.position["task"] == len(self.tasks):
            # A finished learner may be asked with heads that need less of its state.
            own = {k: v for k, v in own.items() if k in self.method.state_dict()}
        load_grown(self.method, own)
        self._leave_accumulators_to_first()
        return {k: v for k, v in tensors.items() if k.startswith("optimizer/")}

    def _looked(self, done: int, images: int) -> None:
        self._check_stop()
        self.progress.looked(done, images)

    def _check_stop(self) -> None:
        if self._stop:
            raise Interrupted(
                f"Stopped on request; the state is saved. Go on with: {self.resume_with}"
            )

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM finish the step and save; a second Ctrl-C stops at once."""

        def ask_to_stop(number: int, frame: object) -> None:
            self._stop = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        try:
            before = {s: signal.signal(s, ask_to_stop) for s in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: whoever runs us handles signals
            before = {}
        try:
            yield
        except KeyboardInterrupt as error:
            raise Interrupted(
                f"Stopped at once. Go on from the last save with: {self.resume_with}"
            ) from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def merged(stream: Stream) -> TaskData:
    """All tasks as one, for a joint run."""
    train = concatenate([task.train for task in stream.tasks])
    classes = tuple(sorted({c for task in stream.tasks for c in task.classes}))
    return TaskData(0, classes, train, train)


def _optimizer_tensors(state: dict[str, Any]) -> dict[str, Tensor]:
    return {
        f"optimizer/{index}/{name}": value
        for index, entries in state["state"].items()
        for name, value in entries.items()
        if isinstance(value, Tensor)
    }


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        _, index, name = key.split("/")
        state.setdefault(int(index), {})[name] = value
    if state:
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
