"""The parts of one server, which the routes use."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

from anyio import CapacityLimiter
from fastapi import Depends, Request

from hashprompt.photos.answers import Answer
from hashprompt.photos.session import blocking_session
from hashprompt.photos.store.store import Store
from hashprompt.serve.http.monitoring import Metrics
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.jobs.jobs import Job, Jobs
from hashprompt.serve.jobs.learning import Learning, LearnWorker
from hashprompt.serve.photo_archive import PhotoArchive
from hashprompt.serve.predict_queue import PredictQueue
from hashprompt.serve.review_queue import ReviewQueue
from hashprompt.serve.settings import ServeSettings
from hashprompt.serve.state_dir import PrivateFolder


class Service:
    """Everything that belongs to one server.

    Args:
        settings: of the server.
        worker: carries out sessions; by default in a separate process.

    Raises:
        UserError: if the folder is no classifier.
    """

    def __init__(self, settings: ServeSettings, worker: LearnWorker | None = None) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.store = Store(settings.folder)
        self.predictions = PredictQueue(settings, self.metrics, self._is_to_keep, self._is_learning)
        self.private = PrivateFolder(settings.folder)
        self.archive = PhotoArchive(settings.photos, self.store)
        self.jobs = Jobs(self.private, self.archive, settings.limits.kept_jobs)
        self.review = ReviewQueue(self.private, settings.limits.kept_photos)
        self.learning = Learning(settings, self.jobs, self._learned, worker or LearnWorker())
        self.planning = CapacityLimiter(1)  # a plan takes much memory
        add_gauge = self.metrics.add_gauge
        add_gauge("version", "The current version; 0 before the first.", self.version)
        add_gauge("waiting_photos", "Photos without answers.", lambda: self.predictions.waiting)
        add_gauge("jobs", "Sessions that wait or run.", lambda: len(self.jobs.unfinished()))
        add_gauge("unsure_photos", "Photos in the review queue.", lambda: len(self.review))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer and learn meanwhile. A read-only server writes nothing.

        Raises:
            UserError: if another server uses the classifier, or a file is damaged.
        """
        with ExitStack() as stack:
            if not self.settings.read_only:
                stack.enter_context(self.private.opened())
                self.jobs.load()
                self.archive.write_list()
                self.review.load(self.settings.keep_unsure)
                self.learning.start()
                stack.callback(self.learning.stop)
            self.predictions.start()
            stack.callback(self.predictions.stop)
            yield

    def _is_to_keep(self, answer: Answer) -> bool:
        """Whether to store a photo with this answer in the review queue."""
        unsure = answer.is_unknown or answer.confidence < self.settings.sure
        return self.review.is_on and unsure

    def _is_learning(self) -> bool:
        return bool(self.jobs.unfinished())

    def _learned(self, job: Job) -> None:
        self.review.remove(job.asked)

    def unfinished(self) -> str | None:
        """Name of an unfinished session that this server did not start."""
        if self.settings.read_only:  # it knows no jobs, and could not change anything
            return None
        own = {str(self.jobs.source(job)) for job in self.jobs.all()}
        return blocking_session(self.store, own)

    def refuse_unfinished(self) -> None:
        """
        Raises:
            Refusal: if an unfinished session was started elsewhere, and does not run any more.
        """
        name = self.unfinished()
        if name is not None and self.store.is_free():
            raise Refusal(
                409,
                f"The session of {name} was started outside this page and is unfinished. Finish it "
                f"(`hashprompt learn {self.settings.name} --resume`), or drop it in Teach (DELETE "
                "/api/unfinished).",
            )

    def version(self) -> int:
        """The current version; 0 if nothing is learned."""
        return 0 if self.store.is_new else self.store.current()

    def known_classes(self) -> list[str]:
        return [] if self.store.is_new else list(self.store.version().info["classes"])


def _service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_service_of)]
