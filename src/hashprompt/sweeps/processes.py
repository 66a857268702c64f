"""The local engine: worker processes that share the cores of this machine."""

import os
import queue
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from hashprompt.runs.worker_process import WorkerEnded, WorkerProcess
from hashprompt.storage.files import inside, make_folder
from hashprompt.sweeps.folder import place_for_logs
from hashprompt.sweeps.jobs import Job, Outcome, Tell

DIED = "the process that ran it died (exit code {code}); see {log}"


class Worker:
    """Runs one job after the other in a process, which is started again when it dies.

    Args:
        number: of the worker, from 0.
        threads: that it may use.
        gpu: the only one that it sees; None where there is none.
        folder: for what its processes print.
    """

    def __init__(self, number: int, threads: int, gpu: str | None, folder: Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        make_folder(inside(folder, "logs"))
        self._log = inside(folder, "logs", f"worker-{number}.txt")
        self._process = WorkerProcess("hashprompt.sweeps.worker", environment, self._log)
        self._stopped = threading.Event()

    def attempt(self, job: Job) -> Outcome:
        """Run a job in the worker's process, and wait for it."""
        try:
            (outcome,) = self._process.carry_out(asdict(job))
        except WorkerEnded as ended:
            if self._stopped.is_set():
                return Outcome("stopped")
            return Outcome("failed", DIED.format(code=ended.code, log=self._log))
        return Outcome(**outcome)

    def stop(self) -> None:
        """Let it save the cell in hand and end."""
        self._stopped.set()
        self._process.stop()


class Processes:
    """Runs jobs on this machine.

    Args:
        workers: processes at a time; default: one per GPU, else one per core.
        retries: more attempts at a job whose process died or whose code failed.
    """

    def __init__(self, workers: int | None = None, retries: int = 2) -> None:
        self._gpus, cores = visible_gpus(), count_cores()
        self.workers = workers or len(self._gpus) or cores
        self._threads = max(cores // self.workers, 1)
        self._retries = retries
        self._running: list[tuple[Worker, threading.Thread]] = []
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()

    def start(self, jobs: Sequence[Job], tell: Tell) -> None:
        """Begin; `tell` is called from threads."""
        for job in jobs:
            self._jobs.put(job)
        logs = place_for_logs(jobs[0].folder)
        for number in range(min(self.workers, len(jobs))):
            gpu = self._gpus[number % len(self._gpus)] if self._gpus else None
            worker = Worker(number, self._threads, gpu, logs)
            thread = threading.Thread(target=self._work, args=(worker, tell), daemon=True)
            self._running.append((worker, thread))
            thread.start()

    def _work(self, worker: Worker, tell: Tell) -> None:
        try:
            while True:
                job = self._jobs.get_nowait()
                attempts, outcome = 1, worker.attempt(job)
                while outcome.may_be_retried and attempts <= self._retries:
                    attempts, outcome = attempts + 1, worker.attempt(job)
                tell(job, outcome, attempts)
        except queue.Empty:
            worker.stop()

    @property
    def is_working(self) -> bool:
        return any(thread.is_alive() for _, thread in self._running)

    def stop(self) -> None:
        """Save all cells in hand, begin no other, and wait for that."""
        with suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()
        for worker, _ in self._running:
            worker.stop()
        for _, thread in self._running:
            thread.join()


def count_cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """NVIDIA's GPUs that this process may use, by the names that CUDA takes; torch is not asked."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    try:
        told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = [line for line in told.stdout.splitlines() if line.startswith("GPU ")]
    return [str(number) for number in range(len(lines))]
