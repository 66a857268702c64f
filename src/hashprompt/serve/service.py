"""All that belongs to one server."""

import threading
from contextlib import ExitStack, suppress
from importlib import import_module
from typing import Annotated

from fastapi import Depends, Request

from hashprompt.photos.answers import Answer
from hashprompt.photos.store.store import Store
from hashprompt.serve.http.metrics import Metrics
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.jobs.jobs import Job, Jobs
from hashprompt.serve.jobs.learning import Learning, LearnWorker, Worker
from hashprompt.serve.jobs.rollback import is_free, left_elsewhere
from hashprompt.serve.predict_queue import PredictQueue, header_status
from hashprompt.serve.review_queue import ReviewQueue
from hashprompt.serve.settings import ServeSettings
from hashprompt.serve.state_dir import PrivateFolder

# The second has all weights that there are; a classifier that has learned knows its own.
FOR_PLANS = ("hashprompt.photos.planner", "hashprompt.backbone.weights")


class Service:
    """What requests are carried out with.

    Args:
        settings: of the server.
        worker: carries out learns; by default in a process of its own.

    Raises:
        UserError: if the folder is no classifier.
    """

    def __init__(self, settings: ServeSettings, worker: Worker | None = None) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.store = Store(settings.folder)
        self.predictions = PredictQueue(settings, self.metrics, self._is_to_keep, self._is_learning)
        self.private = PrivateFolder(settings.folder)
        self.jobs = Jobs(self.private, settings.limits.kept_jobs)
        self.review = ReviewQueue(self.private, settings.limits.kept_photos)
        self.learning = Learning(settings, self.jobs, self._learned, worker or LearnWorker())
        self.followers = 0  # clients that follow a job
        self.is_planning = False
        self._read: tuple[tuple[int, ...], tuple[int, list[str]]] | None = None
        self._running: ExitStack | None = None
        for name, text, read in (
            ("version", "The current version; 0 before the first.", self.version),
            ("waiting_photos", "Photos without answers yet.", lambda: self.predictions.waiting),
            ("jobs", "Sessions that wait or run.", lambda: len(self.jobs.unfinished())),
            ("unsure_photos", "Photos in the review queue.", lambda: len(self.review)),
        ):
            self.metrics.add_gauge(name, text, read)

    def start(self) -> None:
        """Begin, unless it has begun. A server that only answers writes nothing.

        Raises:
            UserError: if another server uses the classifier, or something on disk is damaged.
        """
        if self._running is not None:
            return
        with ExitStack() as stack:
            if not self.settings.read_only:
                stack.enter_context(self.private.opened())
                self.jobs.load()
                self.review.load(self.settings.keep_unsure)
                self.learning.start()
                stack.callback(self.learning.stop)
                threading.Thread(target=self._import_ahead, name="importing", daemon=True).start()
            self.predictions.start()
            stack.callback(self.predictions.stop)
            self._running = stack.pop_all()

    def stop(self) -> None:
        if self._running is not None:
            self._running.close()

    def _import_ahead(self) -> None:
        """So that the first plan need not wait for it; what is wrong, that one is told."""
        with suppress(Exception):
            for name in FOR_PLANS if self.store.is_new else FOR_PLANS[:1]:
                import_module(name)

    def _is_to_keep(self, answer: Answer) -> bool:
        """Whether a photo with this answer goes to those it is unsure about."""
        unsure = answer.is_unknown or answer.confidence < self.settings.sure
        return self.review.is_on and unsure

    def _is_learning(self) -> bool:
        return bool(self.jobs.unfinished())

    def unfinished(self) -> str | None:
        """What a learn is called that was begun outside of this server and is not finished."""
        if self.settings.read_only:  # it knows no jobs, and nothing can be done about it here
            return None
        own = {str(self.jobs.source(job)) for job in self.jobs.all()}
        return left_elsewhere(self.store, own)

    def refuse_unfinished(self) -> None:
        """
        Raises:
            Refusal: if a learn that was begun elsewhere is in the way, and nobody goes on with it.
        """
        name = self.unfinished()
        if name is not None and is_free(self.store):
            raise Refusal(
                409,
                f"A learn of {name} was begun outside of this page and is not finished. Finish it "
                f"(`hashprompt learn {self.settings.name} --resume`), or drop it in Teach (DELETE "
                "/api/unfinished).",
            )

    def version(self) -> int:
        """The version that answers; 0 if nothing is learned."""
        return self._known()[0]

    def known_classes(self) -> list[str]:
        return self._known()[1]

    def _known(self) -> tuple[int, list[str]]:
        """Number and classes of the version that answers, read when `classifier.json` changes."""
        seen = header_status(self.settings.folder)
        if seen is None:
            return 0, []
        if self._read is None or self._read[0] != seen:
            version = self.store.version()
            self._read = seen, (version.number, list(version.info["classes"]))
        return self._read[1]

    def _learned(self, job: Job) -> None:
        self.review.remove(job.asked)


def _service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_service_of)]


def request_id(request: Request) -> str:
    return str(request.state.request_id)
