"""A stream of tasks, cut from a source: which classes or domains arrive when."""

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageSource, ImageTable, concatenate, tensor_hash
from hashprompt.data.streams.class_orders import order_classes
from hashprompt.data.streams.sources import load_source
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions

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
    """Tasks in order, with their names and fingerprint."""

    name: str
    scenario: str  # `class` or `domain`
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
    def stages(self) -> tuple[TaskData, ...]:
        """The tasks that are evaluated, also if they are learned as one."""
        return self.joint_of or self.tasks


def joint(stream: Stream) -> Stream:
    """All tasks learned as one, and tested separately."""
    train = concatenate([task.train for task in stream.tasks])
    classes = tuple(sorted({c for task in stream.tasks for c in task.classes}))
    merged = TaskData(0, classes, train, stream.tasks[0].test)
    return replace(stream, tasks=(merged,), joint_of=stream.tasks)


def load_stream(name: str, options: StreamOptions, seed: int) -> Stream:
    """Load a source by name and cut it into tasks."""
    return cut_source(load_source(name, options), name, options, seed)


def cut_source(source: ImageSource, name: str, options: StreamOptions, seed: int) -> Stream:
    """Cut a source into tasks; `name` is the stream's name in messages."""
    _check(source)
    fingerprint = source.fingerprint or tensor_hash(
        source.name, *(t for s in (source.train, source.test) for t in (s.images, s.labels))
    )
    if options.holdout:
        source = _without_test(source, options.holdout)
    order_seed = options.order_seed if options.order_seed is not None else seed
    source = _ordered_domains(source, options.domain_order, order_seed)
    order = _class_order(source, options, order_seed)
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
    untrained = set(source.test.labels.tolist()) - set(source.train.labels.tolist())
    if untrained:
        names = ", ".join(source.class_names[c] for c in sorted(untrained)[:5])
        raise UserError(
            f"Classes in the test images but not in the training images: {names}. Add training "
            "images of them or leave out their test images."
        )
    if source.train.domains is None:
        return
    # Every domain must show every class, or a method could not describe it.
    shown = set(zip(source.train.domains.tolist(), source.train.labels.tolist(), strict=True))
    classes = torch.unique(source.train.labels).tolist()
    for d, c in itertools.product(range(len(source.domain_names)), classes):
        if (d, c) not in shown:
            raise UserError(
                f"Domain `{source.domain_names[d]}` has no training images of class "
                f"`{source.class_names[c]}`. Add images or leave out the class."
            )


def _without_test(source: ImageSource, share: float) -> ImageSource:
    """The source with part of its training images in place of the test images."""
    if source.shared_test:
        return _without_last_domains(source, share)
    train = source.train
    held = torch.zeros(len(train), dtype=torch.bool)
    for rows in _rows_by_class(train):  # the last share of each class
        # At least one image on each side; the image of a class of one stays in training.
        count = min(len(rows) - 1, max(1, round(share * len(rows))))
        held[rows[len(rows) - count :]] = True
    if not held.any():
        raise UserError("holdout needs a class of two or more training images. Use holdout=0.")
    return replace(source, train=train.select(~held), test=train.select(held))


def _without_last_domains(source: ImageSource, share: float) -> ImageSource:
    """Hold out whole domains: neighbouring frames of one film are nearly equal."""
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


def _ordered_domains(source: ImageSource, order: str, seed: int) -> ImageSource:
    if not source.domain_names or order == "natural":
        return source
    generator = torch.Generator().manual_seed(seed)
    arrival = torch.randperm(len(source.domain_names), generator=generator)
    place = arrival.argsort()  # domain -> when it arrives
    train, test = (
        t if t.domains is None else replace(t, domains=place[t.domains])
        for t in (source.train, source.test)
    )
    names = tuple(source.domain_names[d] for d in arrival.tolist())
    return replace(source, train=train, test=test, domain_names=names)


def _class_order(source: ImageSource, options: StreamOptions, seed: int) -> Tensor:
    present = torch.unique(source.train.labels)
    if source.domain_names:
        order = present  # all classes are there from the first task on
    elif source.task_of:  # the data set decides
        order = present[torch.tensor(source.task_of)[present].argsort(stable=True)]
    else:
        order = order_classes(present, options.class_order, seed)
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
            f"{count} tasks, but only {len(order)} classes. Use tasks={len(order)} or fewer."
        )
    return list(ids.tensor_split(count))  # as equal as possible


def _rows_by_class(table: ImageTable) -> list[Tensor]:
    """Rows of each class (in each domain), in the order of the table."""
    groups = table.labels
    if table.domains is not None:
        groups = table.domains * MANY + table.labels
    return [(groups == group).nonzero()[:, 0] for group in torch.unique(groups)]


def _limit(table: ImageTable, per_class: int | None) -> ImageTable:
    """The first `per_class` images of each class (and domain), in the order of the table."""
    if per_class is None:
        return table
    return table.select(torch.cat([rows[:per_class] for rows in _rows_by_class(table)]).sort()[0])


def _relabel(table: ImageTable, order: Tensor) -> ImageTable:
    """Labels become arrival ids; classes outside the order are left out."""
    arrival = torch.full((int(max(table.labels.max(), order.max())) + 1,), -1)
    arrival[order] = torch.arange(len(order))
    labels = arrival[table.labels]
    kept = table.select(labels >= 0)
    return ImageTable(kept.images, labels[labels >= 0], kept.domains)


def _by_class(chunks: list[Tensor], train: ImageTable, test: ImageTable) -> tuple[TaskData, ...]:
    def of(table: ImageTable, chunk: Tensor) -> ImageTable:
        return table.select(torch.isin(table.labels, chunk))

    return tuple(
        TaskData(index, tuple(chunk.tolist()), of(train, chunk), of(test, chunk))
        for index, chunk in enumerate(chunks)
    )


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
