"""Questions of all clients, batched together, answered by the last finished version."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hashprompt.errors import UserError
from hashprompt.photos import ContinualClassifier
from hashprompt.photos.answers import Answer
from hashprompt.photos.inputs.predict_inputs import InputImage, InputLoader, RawInput
from hashprompt.photos.store.store import HEADER
from hashprompt.serve.http.metrics import Metrics
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.settings import ServeSettings

if TYPE_CHECKING:
    from hashprompt.photos.predictor import Predictor

DECODERS = 2  # threads; Pillow lets go of the interpreter while it works
NOTHING_LEARNED = "It has learned nothing yet: teach it first."


class Answered(NamedTuple):
    """Answers to the photos of one question by one version, and features of those to keep."""

    version: int
    answers: list[Answer]
    features: list[np.ndarray | None]


@dataclass
class _Question:
    images: list[InputImage]
    answered: "Future[Answered]" = field(default_factory=Future)


class Answering:
    """One thread that computes, and the queue before it.

    Args:
        settings: of the server.
        metrics: counts answers.
        wants_feature: whether the plain feature of a photo is needed, by its answer.
        is_learning: whether a learn wants the processors, too.
    """

    def __init__(
        self,
        settings: ServeSettings,
        metrics: Metrics,
        wants_feature: Callable[[Answer], bool] = lambda answer: False,
        is_learning: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings, self._metrics = settings, metrics
        self._wants_feature, self._is_learning = wants_feature, is_learning
        self._classifier: ContinualClassifier | None = None
        self._predictor: Predictor | None = None
        self._seen: tuple[int, ...] = ()  # of `classifier.json`, when it was last read
        self._loading = threading.Lock()
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._waiting = 0
        self._threads = 0  # of torch, once it is asked
        self._decoders = ThreadPoolExecutor(DECODERS, "decode-asked")
        self._thread = threading.Thread(target=self._run, name="answering", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._questions.put(None)
        self._thread.join(10)
        self._decoders.shutdown(wait=False, cancel_futures=True)

    @property
    def waiting(self) -> int:
        return self._waiting

    # Asking, in the event loop. ------------------------------------------------------------

    async def ask(self, photos: Sequence[tuple[str, bytes]]) -> Answered:
        """Answers to all photos (name, content), by one version.

        Raises:
            Refusal: if too many wait, or nothing is learned yet.
        """
        if self._waiting + len(photos) > self._settings.limits.waiting_photos:
            raise Refusal(503, "Too many questions are waiting. Try again soon.", 1)
        self._waiting += len(photos)
        try:
            loop = asyncio.get_running_loop()
            predictor = self._predictor
            if predictor is None:
                predictor = await loop.run_in_executor(self._decoders, self.current)
            short_side = predictor.short_side  # the same for all versions
            images = await asyncio.gather(
                *(
                    loop.run_in_executor(self._decoders, _decoded, name, content, short_side)
                    for name, content in photos
                )
            )
            question = _Question(list(images))
            self._questions.put(question)
            return await asyncio.wrap_future(question.answered)
        finally:
            self._waiting -= len(photos)

    # The version that answers. -------------------------------------------------------------

    def current(self) -> "Predictor":
        """Loaded; a learn or undo that has finished meanwhile is noticed by the file's status.

        Raises:
            Refusal: if nothing is learned yet, or the version cannot be loaded.
        """
        with self._loading:
            seen = header_status(self._settings.folder)
            if seen is None:
                raise Refusal(409, NOTHING_LEARNED)
            if self._predictor is None or seen != self._seen:
                try:
                    self._predictor = self._loaded()
                except UserError as error:
                    raise Refusal(503, f"The classifier cannot be opened: {error}", 10) from error
                self._seen = seen
            return self._predictor

    def _loaded(self) -> "Predictor":
        if self._classifier is None:
            settings = self._settings
            device = {k: v for k, v in settings.options.items() if k == "device"}
            self._classifier = ContinualClassifier(settings.folder, settings.backbone, **device)
        return self._classifier.predictor()

    # Computing, in the thread. -------------------------------------------------------------

    def _run(self) -> None:
        # So that the first question need not wait for it; what is wrong, it is told.
        with suppress(Exception):
            self.current()
        while True:
            question = self._questions.get()
            if question is None:
                return
            batch = [question]
            while sum(len(q.images) for q in batch) < self._settings.limits.batch:
                try:
                    more = self._questions.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._questions.put(None)
                    break
                batch.append(more)
            self._answer([q for q in batch if q.answered.set_running_or_notify_cancel()])

    def _answer(self, batch: list[_Question]) -> None:
        try:
            predictor = self.current()
            self._share_processors()
            threshold, size = self._settings.unknown_threshold, self._settings.limits.batch
            images = [image for question in batch for image in question.images]
            rows = iter(list(predictor.stream(images, threshold, size, self._wants_feature)))
            for question in batch:
                own = [next(rows) for _ in question.images]
                answers, features = [row[0] for row in own], [row[1] for row in own]
                question.answered.set_result(Answered(predictor.info["number"], answers, features))
            self._metrics.count("answers_total", by=len(images))
            self._metrics.count("passes_total")
        except BaseException as error:  # of whatever kind: the clients must hear of it
            for question in batch:
                if not question.answered.done():
                    question.answered.set_exception(error)

    def _share_processors(self) -> None:
        """One thread while it learns: two that wait for each other would wait for the learn."""
        import torch

        self._threads = self._threads or torch.get_num_threads()
        torch.set_num_threads(1 if self._is_learning() else self._threads)


def header_status(folder: Path) -> tuple[int, ...] | None:
    """Changes whenever another version answers; None if there is none."""
    try:
        status = (folder / HEADER).stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _decoded(name: str, content: bytes, short_side: int) -> InputImage:
    (image,) = InputLoader([RawInput(name, content)], short_side)
    return image
