"""Photos of all clients, answered in batches by the last finished version."""

import threading
from asyncio import wrap_future
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from starlette.concurrency import run_in_threadpool

from hashprompt.errors import UserError
from hashprompt.photos import ContinualClassifier
from hashprompt.photos.answers import Answer
from hashprompt.photos.inputs.predict_inputs import InputImage, read_inputs
from hashprompt.photos.store.store import HEADER
from hashprompt.serve.http.monitoring import Metrics
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.settings import ServeSettings

if TYPE_CHECKING:
    from hashprompt.photos.predictor import Predictor

NOTHING_LEARNED = "The classifier has learned nothing yet. Teach it first."


class Prediction(NamedTuple):
    """Answers to the photos of one request by one version, and features of those to keep."""

    version: int
    answers: list[Answer]
    features: list[np.ndarray | None]


Waiting = tuple[list[InputImage], "Future[Prediction]"]  # images of a request, and its answers


class PredictQueue:
    """Waiting requests, and the one thread that answers them.

    Args:
        settings: of the server.
        metrics: counts answers.
        wants_feature: whether the frozen feature of a photo is needed, by its answer.
        is_learning: whether a session needs the processors, too.
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
        self._seen: tuple[int, ...] = ()  # status of `classifier.json` when it was last read
        self._loading = threading.Lock()
        self._requests: deque[Waiting] = deque()
        self.waiting = 0  # photos
        self._threads = 0  # of torch, before a session needed some
        self._thread = ThreadPoolExecutor(1, "predict")

    def start(self) -> None:
        """Load the classifier ahead; the first request reports what is wrong with it."""
        self._thread.submit(self.current)

    def stop(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def predict(self, photos: Sequence[tuple[str, bytes]]) -> Prediction:
        """Answers to all photos (name, content), by one version.

        Raises:
            Refusal: if too many wait, or nothing is learned yet.
        """
        if self.waiting + len(photos) > self._settings.limits.waiting_photos:
            raise Refusal(503, "Too many questions are waiting. Try again soon.", 1)
        self.waiting += len(photos)
        try:
            short_side = (await run_in_threadpool(self.current)).short_side
            loader = read_inputs([InputImage(*photo) for photo in photos], short_side)
            images, prediction = await run_in_threadpool(list, loader), Future[Prediction]()
            self._requests.append((images, prediction))
            self._thread.submit(self._answer_next)
            return await wrap_future(prediction)
        finally:
            self.waiting -= len(photos)

    def current(self) -> "Predictor":
        """The current version, loaded again when `classifier.json` has changed.

        Raises:
            Refusal: if nothing is learned yet, or the version cannot be loaded.
        """
        with self._loading:
            settings = self._settings
            try:
                status = (settings.folder / HEADER).stat()
            except FileNotFoundError:
                raise Refusal(409, NOTHING_LEARNED) from None
            seen = status.st_mtime_ns, status.st_size, status.st_ino
            if self._predictor is None or seen != self._seen:
                device = {k: v for k, v in settings.options.items() if k == "device"}
                try:
                    self._classifier = self._classifier or ContinualClassifier(
                        settings.folder, settings.backbone, **device
                    )
                    self._predictor = self._classifier.predictor()
                except UserError as error:
                    raise Refusal(503, f"The classifier cannot be opened: {error}", 10) from error
                self._seen = seen
            return self._predictor

    # In the thread. ------------------------------------------------------------------------

    def _answer_next(self) -> None:
        """Answer waiting requests, up to a batch; an earlier call may have answered all."""
        batch: list[Waiting] = []
        with suppress(IndexError):  # none waits any more
            while sum(len(images) for images, _ in batch) < self._settings.limits.batch:
                batch.append(self._requests.popleft())
        batch = [request for request in batch if request[1].set_running_or_notify_cancel()]
        try:
            self._answer(batch)
        except BaseException as error:  # the clients must be told, whatever it is
            for _, prediction in batch:
                if not prediction.done():
                    prediction.set_exception(error)

    def _answer(self, batch: Sequence[Waiting]) -> None:
        images = [image for own, _ in batch for image in own]
        if not images:
            return
        predictor = self.current()
        self._share_processors()
        threshold, size = self._settings.unknown_threshold, self._settings.limits.batch
        rows = iter(list(predictor.stream(images, threshold, size, self._wants_feature)))
        for own, prediction in batch:
            answers, features = zip(*(next(rows) for _ in own), strict=True)
            found = Prediction(predictor.info["number"], list(answers), list(features))
            prediction.set_result(found)
        self._metrics.answers.inc(len(images))
        self._metrics.passes.inc()

    def _share_processors(self) -> None:
        """Use one thread during a session: more would wait for each other and for the session."""
        import torch

        self._threads = self._threads or torch.get_num_threads()
        torch.set_num_threads(1 if self._is_learning() else self._threads)
