"""Engines: a thread per worker takes one job after the other; workers run them where they like."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hashprompt.errors import UserError, shortened
from hashprompt.options import unknown
from hashprompt.runs.worker_process import WorkerEnded, WorkerProcess
from hashprompt.storage.files import inside, make_folder
from hashprompt.sweeps.folder import is_uri
from hashprompt.sweeps.jobs import Report, SweepJob, SweepOutcome, attempt

MAX_THREADS = 1000
WAIT_SECONDS = 1.0  # between two checks whether to stop


class Engine:
    """Runs jobs with workers.

    Args:
        make_worker: is called with the number of the worker and the address of the sweep.
        workers: jobs at a time; None: as many as there is room for.
        retries: further attempts at a job whose process died or whose code failed.
    """

    def __init__(self, make_worker: "MakeWorker", workers: int | None, retries: int) -> None:
        self.workers = workers
        self._make_worker, self._retries = make_worker, retries
        self._running: list[tuple[ProcessWorker | RayWorker, threading.Thread]] = []
        self._jobs: Iterator[SweepJob] = iter(())  # those that no thread has taken

    def start(self, jobs: Sequence[SweepJob], report: Report) -> None:
        """Start the jobs; `report` is called from threads."""
        self._jobs = iter([*jobs])
        for number in range(min(self.workers or MAX_THREADS, len(jobs))):
            worker = self._make_worker(number, jobs[0].folder)
            thread = threading.Thread(target=self._work, args=(worker, report), daemon=True)
            self._running.append((worker, thread))
            thread.start()

    def _work(self, worker: "ProcessWorker | RayWorker", report: Report) -> None:
        for job in self._jobs:
            attempts, outcome = 1, worker.attempt(job)
            while outcome.kind == "failed" and attempts <= self._retries:
                attempts, outcome = attempts + 1, worker.attempt(job)
            report(job, outcome, attempts)
        worker.stop()

    @property
    def is_working(self) -> bool:
        return any(thread.is_alive() for _, thread in self._running)

    def stop(self) -> None:
        """Save the current runs, start no other, and wait until they are saved."""
        for _ in self._jobs:
            pass
        for worker, _ in self._running:
            worker.stop()
        for _, thread in self._running:
            thread.join()


def make_engine(name: str, workers: int | None, retries: int, **resources: Any) -> Engine:
    """An engine by its name.

    Args:
        workers: jobs at a time; default: one per GPU, else one per core (Ray: what fits).
        **resources: for Ray, None for the default; see `ray_workers`.
    """
    if workers is not None and workers < 1:
        raise UserError(f"workers={workers}: at least one has to work.")
    if retries < 0:
        raise UserError(f"retries={retries}: give 0 for none.")
    resources = {option: value for option, value in resources.items() if value is not None}
    if name == "ray":
        return Engine(ray_workers(**resources), workers, retries)
    if name != "processes":
        raise UserError(unknown("engine", name, ("processes", "ray")))
    if resources:
        raise UserError(f"{', '.join(resources)}: only for the engine ray.")
    gpus, cores = visible_gpus(), count_cores()
    count = workers or len(gpus) or cores
    threads = max(cores // count, 1)
    return Engine(lambda number, place: ProcessWorker(number, place, threads, gpus), count, retries)


class ProcessWorker:
    """Runs jobs in a process of this machine, which is started again when it dies.

    Args:
        number: of the worker, from 0.
        place: address of the sweep; logs go there if it is a folder.
        threads: that the process may use.
        gpus: of the machine; the process sees one of them.
    """

    def __init__(self, number: int, place: str, threads: int, gpus: Sequence[str]) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
        folder = Path(mkdtemp(prefix="hashprompt-logs-") if is_uri(place) else place)
        make_folder(inside(folder, "logs"))
        self._log = inside(folder, "logs", f"worker-{number}.txt")
        self._process = WorkerProcess("hashprompt.sweeps.jobs", environment, self._log)
        self._stopped = threading.Event()

    def attempt(self, job: SweepJob) -> SweepOutcome:
        """Run a job in the process, and wait for it."""
        try:
            outcome = next(self._process.carry_out(asdict(job)))
        except WorkerEnded as ended:
            if self._stopped.is_set():
                return SweepOutcome("stopped")
            died = f"the process that ran it died (exit code {ended.code}); see {self._log}"
            return SweepOutcome("failed", died)
        return SweepOutcome(**outcome)

    def stop(self) -> None:
        """Let the current job save and end. May be called from another thread."""
        self._stopped.set()
        self._process.stop()


def ray_workers(address: str | None = None, cpus: float = 1.0, gpus: float = 0.0) -> "MakeWorker":
    """Workers that make every job a task of a Ray cluster.

    A further attempt, on any machine, resumes from the checkpoint in the sweep's folder, which all
    machines must see under the same path or URI.

    Args:
        address: of the cluster, as `ray.init` takes it; default: one on this machine.
        cpus, gpus: of one run; a fraction of a GPU is shared.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise UserError("The engine ray needs pip install 'hashprompt[ray]'") from error
    if cpus <= 0 or gpus < 0:
        raise UserError(f"cpus={cpus}, gpus={gpus}: a run needs a share of a CPU.")

    def make(number: int, place: str) -> RayWorker:
        if not ray.is_initialized():
            try:
                ray.init(address, log_to_driver=False, include_dashboard=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(f"No Ray cluster at {address}: {error}") from error
        # The engine repeats and counts attempts, Ray does not.
        how = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0}
        return RayWorker(ray, ray.remote(**how)(_attempt_on_ray))

    return make


def _attempt_on_ray(job: dict[str, Any]) -> dict[str, str]:
    return asdict(attempt(SweepJob(**job)))  # plain values suit other versions best


class RayWorker:
    """Runs jobs as tasks of Ray."""

    def __init__(self, ray: Any, task: Any) -> None:
        self._ray, self._task = ray, task
        self._stopped = threading.Event()

    def attempt(self, job: SweepJob) -> SweepOutcome:
        if self._stopped.is_set():
            return SweepOutcome("stopped")
        errors, running = self._ray.exceptions, self._task.remote(asdict(job))
        while not self._ray.wait([running], timeout=WAIT_SECONDS)[0]:
            if self._stopped.is_set():
                self._ray.cancel(running, force=False)
        try:
            return SweepOutcome(**self._ray.get(running))
        except (errors.TaskCancelledError, KeyboardInterrupt):
            return SweepOutcome("stopped")
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as error:
            kind = type(error).__name__.removesuffix("Error")
            died = f"the process or the machine that ran it died ({kind})"
            return SweepOutcome("failed", died)
        except errors.RayError as error:
            return SweepOutcome("failed", f"{type(error).__name__}: {shortened(error, 500)}")

    def stop(self) -> None:
        self._stopped.set()


MakeWorker = Callable[[int, str], ProcessWorker | RayWorker]


def count_cores() -> int:
    """Cores that this process may use, or all where the system does not tell."""
    is_known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if is_known else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """GPUs that this process may use, by the names that CUDA takes."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else map(str, range(torch.cuda.device_count()))
    return [*names][: torch.cuda.device_count()]
