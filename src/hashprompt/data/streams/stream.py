"""A stream of tasks, cut from a source: which classes or domains arrive when."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageSource, ImageTable, concatenate, tensor_hash
from hashprompt.data.reading.options import Track, untracked
from hashprompt.data.streams.class_orders import order_classes
from hashprompt.data.streams.sources import load_source
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions

Scenario = Literal["class", "domain"]
MANY = 10**6  # more than there are classes


@dataclass(frozen=True)
class TaskData:
    """One task. Labels are arrival ids: classes numbered in the order they arrive."""

    index: int
    classes: tuple[int, ...]
    train: ImageTable
    test: ImageTable


@dataclass(frozen=True)
class Stream:
    """Tasks in order, and what identifies them."""

    name: str
    scenario: Scenario
    tasks: tuple[TaskData, ...]
    class_order: tuple[int, ...]  # arrival id -> the source's class id
    class_names: tuple[str, ...]  # by arrival id
    domain_names: tuple[str, ...]
    fingerprint: str
    flip: bool
    shared_test: bool = False  # one test set for all tasks
    split: str | None = None
    notes: tuple[str, ...] = ()
    joint_of: tuple[TaskData, ...] = ()  # the tasks that were merged into one

    @property
    def is_joint(self) -> bool:
        return bool(self.joint_of)

    @property
    def stages(self) -> tuple[TaskData, ...]:
        """What accuracy is told of: the tasks, also where they are learned as one."""
        return self.joint_of or self.tasks

    def stage_of(self, task: int) -> int:
        """The stage that is reached when a task is learned."""
        return task + len(self.stages) - len(self.tasks)


def joint(stream: Stream) -> Stream:
    """All tasks learned as one, and tested as they are."""
    train = concatenate([task.train for task in stream.tasks])
    classes = tuple(sorted({c for task in stream.tasks for c in task.classes}))
    merged = TaskData(0, classes, train, stream.tasks[0].test)
    return replace(stream, tasks=(merged,), joint_of=stream.tasks)


def load_stream(name: str, options: StreamOptions, seed: int, track: Track = untracked) -> Stream:
    """Load a source by name and cut it into tasks; `track` shows how far reading files is."""
    return cut_source(load_source(name, options, track), name, options, seed)


def cut_source(source: ImageSource, name: str, options: StreamOptions, seed: int) -> Stream:
    """Cut a source into tasks; `name` is what the user called it."""
    _check(source)
    fingerprint = source.fingerprint or tensor_hash(
        source.name, *(t for s in (source.train, source.test) for t in (s.images, s.labels))
    )
    if options.holdout:
        source = _without_test(source, options.holdout)
    source = _ordered_domains(source, options, seed)
    order = _class_order(source, options, seed)
    train = _relabel(_limit(source.train, options.train_per_class), order)
    test = _relabel(_limit(source.test, options.test_per_class), order)
    if source.domain_names:
        tasks = _by_domain(source, options, train, test, len(order))
    else:
        tasks = _by_class(_chunks(source, options, order), train, test)
    for task in tasks:
        if not len(task.train) or not len(task.test):
            raise UserError(
                f"Task {task.index + 1} of stream `{name}` has {len(task.train)} training and "
                f"{len(task.test)} test images. Use fewer tasks or more images per class."
            )
    return Stream(
        source.name,  # not a path: results of two machines must be comparable
        "domain" if source.domain_names else "class",
        tasks,
        tuple(order.tolist()),
        tuple(source.class_names[c] for c in order.tolist()),
        source.domain_names,
        fingerprint,
        source.flip,
        source.shared_test,
        source.split,
        source.notes,
    )


def _check(source: ImageSource) -> None:
    if not len(source.train) or not len(source.test):
        raise UserError(
            f"Stream `{source.name}` is empty: {len(source.train)} training and "
            f"{len(source.test)} test images. Both are needed."
        )
    never = set(source.test.labels.tolist()) - set(source.train.labels.tolist())
    if never:
        names = ", ".join(source.class_names[c] for c in sorted(never)[:5])
        raise UserError(
            f"Classes in the test images but not in the training images: {names}. Add training "
            "images of them or leave out their test images."
        )
    if source.train.domains is not None:
        _check_domains(source, source.train.domains)


def _check_domains(source: ImageSource, domains: Tensor) -> None:
    """Every domain must show every class, or a method could not describe it."""
    there = set(zip(domains.tolist(), source.train.labels.tolist(), strict=True))
    for d, domain in enumerate(source.domain_names):
        for c in torch.unique(source.train.labels).tolist():
            if (d, c) not in there:
                raise UserError(
                    f"Domain `{domain}` has no training images of class `{source.class_names[c]}`. "
                    "Every domain must show every class; add images or leave out the class."
                )


def _without_test(source: ImageSource, share: float) -> ImageSource:
    """Part of the training images in the place of the test images."""
    if source.shared_test:
        return _without_last_domains(source, share)
    train, test = _hold_out(source.train, share)
    if not len(test):
        raise UserError(
            "holdout needs classes of two or more training images; here each has one. Use "
            "holdout=0."
        )
    return replace(source, train=train, test=test)


def _without_last_domains(source: ImageSource, share: float) -> ImageSource:
    """Whole domains are held out: neighbouring frames of one film would give it all away."""
    assert source.train.domains is not None
    count = len(source.domain_names)
    kept = count - max(1, round(share * count))
    if kept < 1:
        raise UserError(f"holdout={share} leaves none of the {count} domains. Use less.")
    held = source.train.select(source.train.domains >= kept)
    return replace(
        source,
        train=source.train.select(source.train.domains < kept),
        test=replace(held, domains=None),
        domain_names=source.domain_names[:kept],
    )


def _ordered_domains(source: ImageSource, options: StreamOptions, seed: int) -> ImageSource:
    if not source.domain_names or options.domain_order == "natural":
        return source
    if options.domain_order.startswith("ni-run-") and source.name == "core50":
        return source  # in the order of its lists already
    if options.domain_order != "shuffled":
        raise UserError(
            f"domain_order={options.domain_order}: expected natural or shuffled, or for core50 "
            "ni-run-0 … ni-run-9."
        )
    chosen = options.order_seed if options.order_seed is not None else seed
    generator = torch.Generator().manual_seed(chosen)
    order = torch.randperm(len(source.domain_names), generator=generator)
    place = order.argsort()  # domain -> when it arrives

    def moved(table: ImageTable) -> ImageTable:
        return table if table.domains is None else replace(table, domains=place[table.domains])

    names = tuple(source.domain_names[d] for d in order.tolist())
    return replace(source, train=moved(source.train), test=moved(source.test), domain_names=names)


def _class_order(source: ImageSource, options: StreamOptions, seed: int) -> Tensor:
    present = torch.unique(source.train.labels)
    if source.domain_names:
        order = present  # classes are all there from the first task on
    elif source.task_of:  # the data set says what arrives when
        order = present[torch.tensor(source.task_of)[present].argsort(stable=True)]
    else:
        chosen = options.order_seed if options.order_seed is not None else seed
        order = order_classes(present, options.class_order, chosen)
    if options.classes is not None and options.classes > len(order):
        raise UserError(f"classes={options.classes}, but the stream has {len(order)} classes.")
    return order[: options.classes]


def _chunks(source: ImageSource, options: StreamOptions, order: Tensor) -> list[Tensor]:
    """Arrival ids of the classes of each task."""
    ids = torch.arange(len(order))
    if source.task_of:
        tasks = torch.tensor(source.task_of)[order]
        given = [ids[tasks == task] for task in torch.unique(tasks).tolist()]
        if options.tasks is not None and options.tasks > len(given):
            raise UserError(f"tasks={options.tasks}, but the data has {len(given)} tasks.")
        return given[: options.tasks]
    count = options.tasks or min(source.tasks, len(order))
    if count > len(order):
        raise UserError(
            f"{count} tasks of at least one class each, but only {len(order)} classes. Use tasks="
            f"{len(order)} or fewer."
        )
    return list(ids.tensor_split(count))  # as equal as can be


def _limit(table: ImageTable, per_class: int | None) -> ImageTable:
    """The first `per_class` images of each class (and domain), in the order of the table."""
    if per_class is None:
        return table
    groups = table.labels if table.domains is None else table.domains * MANY + table.labels
    keep = torch.cat([(groups == g).nonzero()[:per_class, 0] for g in torch.unique(groups)])
    return table.select(keep.sort().values)


def _hold_out(train: ImageTable, share: float) -> tuple[ImageTable, ImageTable]:
    """Split training images: the last share of each class is held out."""
    groups = train.labels if train.domains is None else train.domains * MANY + train.labels
    held = torch.zeros(len(train), dtype=torch.bool)
    for group in torch.unique(groups):
        rows = (groups == group).nonzero()[:, 0]
        # One image at least for each side; a class of a single image stays in training.
        count = min(len(rows) - 1, max(1, round(share * len(rows))))
        held[rows[len(rows) - count :]] = True
    return train.select(~held), train.select(held)


def _relabel(table: ImageTable, order: Tensor) -> ImageTable:
    """Labels become arrival ids; classes outside the order are left out."""
    arrival = torch.full((int(max(table.labels.max(), order.max())) + 1,), -1)
    arrival[order] = torch.arange(len(order))
    labels = arrival[table.labels]
    kept = table.select(labels >= 0)
    return ImageTable(kept.images, labels[labels >= 0], kept.domains)


def _by_class(chunks: list[Tensor], train: ImageTable, test: ImageTable) -> tuple[TaskData, ...]:
    tasks = []
    for index, chunk in enumerate(chunks):
        rows = [torch.isin(table.labels, chunk) for table in (train, test)]
        tasks.append(
            TaskData(index, tuple(chunk.tolist()), train.select(rows[0]), test.select(rows[1]))
        )
    return tuple(tasks)


def _by_domain(
    source: ImageSource, options: StreamOptions, train: ImageTable, test: ImageTable, classes: int
) -> tuple[TaskData, ...]:
    count = options.tasks or len(source.domain_names)
    if count > len(source.domain_names):
        raise UserError(f"{count} tasks, but the stream has {len(source.domain_names)} domains.")
    assert train.domains is not None
    return tuple(
        TaskData(
            d,
            tuple(range(classes)),
            train.select(train.domains == d),
            test if test.domains is None else test.select(test.domains == d),
        )
        for d in range(count)
    )
