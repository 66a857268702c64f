"""The engine for many machines: every job is a task of Ray.

A task whose machine or process dies is given to another by Ray itself, and goes on there from the
checkpoint in the sweep's folder, which all machines must see under the same path or URI.
"""

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hashprompt.errors import UserError
from hashprompt.sweeps.jobs import Job, Outcome, Tell
from hashprompt.sweeps.worker import attempt

LOOK_SECONDS = 1.0


def attempt_remotely(job: dict[str, Any]) -> dict[str, str]:
    """`attempt` on another machine; plain values travel best between versions."""
    return asdict(attempt(Job(**job)))


class RayEngine:
    """Runs jobs on a Ray cluster.

    Args:
        workers: cells at a time; default: as many as the cluster has room for.
        retries: more attempts at a job whose process died or whose code failed.
        address: of the cluster, as `ray.init` takes it; default: one on this machine.
        cpus, gpus: of one cell; a fraction of a GPU is shared.
    """

    def __init__(
        self,
        workers: int | None = None,
        retries: int = 2,
        address: str | None = None,
        cpus: float = 1.0,
        gpus: float = 0.0,
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise UserError(
                "The engine ray needs its package: pip install 'hashprompt[ray]'"
            ) from error
        if cpus <= 0 or gpus < 0:
            raise UserError(f"cpus={cpus}, gpus={gpus}: a cell needs some of a CPU.")
        self._ray, self._retries = ray, retries
        self._resources: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus}
        self._address, self.workers = address, workers
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, jobs: Sequence[Job], tell: Tell) -> None:
        """Connect, and begin."""
        if not self._ray.is_initialized():
            try:
                self._ray.init(self._address, log_to_driver=False, include_dashboard=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(f"No Ray cluster at {self._address}: {error}") from error
        self._thread = threading.Thread(target=self._work, args=(list(jobs), tell), daemon=True)
        self._thread.start()

    def _work(self, waiting: list[Job], tell: Tell) -> None:
        how = {"max_retries": self._retries, **self._resources}
        task: Any = self._ray.remote(attempt_remotely).options(**how)
        most = self.workers or len(waiting)
        attempts = dict.fromkeys((job.digest for job in waiting), 0)
        running: dict[Any, Job] = {}
        while (waiting and not self._stopping.is_set()) or running:
            while waiting and len(running) < most and not self._stopping.is_set():
                job = waiting.pop(0)
                attempts[job.digest] += 1
                running[task.remote(asdict(job))] = job
            ended, _ = self._ray.wait(list(running), timeout=LOOK_SECONDS)
            if self._stopping.is_set():
                for reference in running:
                    self._ray.cancel(reference, force=False)
            for reference in ended:
                job, outcome = running.pop(reference), self._outcome(reference)
                if outcome.may_be_retried and attempts[job.digest] <= self._retries:
                    waiting.append(job)
                else:
                    tell(job, outcome, attempts[job.digest])

    def _outcome(self, reference: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            return Outcome(**self._ray.get(reference))
        except (errors.TaskCancelledError, KeyboardInterrupt):
            return Outcome("stopped")
        except errors.RayError as error:  # its process died too often, or its machine is gone
            return Outcome("refused", f"{type(error).__name__}: {error}")

    @property
    def is_working(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """Save all cells in hand, begin no other, and wait for that."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
