"""The local engine: worker processes that share the cores of this machine."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from hashprompt.storage.files import append_to, inside, make_folder
from hashprompt.sweeps.folder import place_for_logs
from hashprompt.sweeps.jobs import Job, Outcome, Tell

DIED = "the process that ran it died (exit code {code}); see {log}"


class Worker:
    """A process that runs one job after the other, and is started anew when it dies.

    Args:
        number: of the worker, from 0.
        threads: that it may use.
        gpu: that it sees, alone; None where there is none.
        folder: for what its processes print.
    """

    def __init__(self, number: int, threads: int, gpu: str | None, folder: Path) -> None:
        self._environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        if gpu is not None:
            self._environment["CUDA_VISIBLE_DEVICES"] = gpu
        make_folder(inside(folder, "logs"))
        self._log = inside(folder, "logs", f"worker-{number}.txt")
        self._process: subprocess.Popen[str] | None = None
        self._stopped = threading.Event()

    def attempt(self, job: Job) -> Outcome:
        """Run a job in the worker's process, and wait for it."""
        process = self._process = self._running()
        stdin, stdout = _pipe(process.stdin), _pipe(process.stdout)
        try:
            stdin.write(json.dumps(asdict(job)) + "\n")
            stdin.flush()
            answer = stdout.readline()
        except OSError:  # it died before it could read
            answer = ""
        if answer:
            return Outcome(**json.loads(answer))
        code = process.wait()
        if self._stopped.is_set():
            return Outcome("stopped")
        return Outcome("failed", DIED.format(code=code, log=self._log))

    def stop(self) -> None:
        """Let it save the cell in hand and go."""
        self._stopped.set()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        with append_to(self._log) as log:
            return subprocess.Popen(
                [sys.executable, "-m", "hashprompt.sweeps.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                text=True,
                start_new_session=True,  # Ctrl-C is for us, who then tell the workers
            )


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


def _pipe(end: IO[str] | None) -> IO[str]:
    assert end is not None  # it was asked for
    return end
