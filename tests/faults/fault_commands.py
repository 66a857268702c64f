"""Commands under test: what is there before, and what a user sees of it."""

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from faulty_disk import FaultyDisk, Killed
from pictures import write_photos, write_stripes
from running import CommandResult, decisive

from hashprompt import ContinualClassifier
from hashprompt.cli.app import main
from hashprompt.errors import UserError
from hashprompt.photos.store.store import Store
from hashprompt.runs import benchmark
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.http.uploads import PHOTOS, Lesson, TaughtPhoto
from hashprompt.serve.jobs.learn_process import carry_out
from hashprompt.serve.jobs.learning import LearnWorker
from hashprompt.serve.routes import history, learn
from hashprompt.serve.service import Service
from hashprompt.serve.settings import ServeSettings
from hashprompt.storage.files import inside, place_file
from hashprompt.sweeps.engines import Engine
from hashprompt.sweeps.jobs import Report, SweepJob, attempt
from hashprompt.sweeps.runner import Sweep

RUN = "run --method simplecil --stream npz:tiny.npz --set tasks=2 --out run --quiet"
FIRST = RUN.replace("--out run", "--out first")  # fills the cache of features
TAUGHT = "server teach summer cedar"
LEARN = "learn birds spring --backbone nano --instant --quiet --set epochs=1 --set batch_size=8"
MORE = "learn birds summer --instant --quiet --no-report"
RETRAIN = "forget birds cedar --retrain spring --quiet"
TRAINING = MORE.replace("--instant", "--quick")
GRID = """
methods: simplecil
streams: npz:tiny.npz
seeds: [0, 1]
options: {tasks: 2}
"""
CLOCK = {"created", "seconds", "bytes", "source"}  # a source of the server has a random name


def call(line: str) -> CommandResult:
    """A command line, in this process."""
    argv, sys.argv = sys.argv, ["hashprompt", *line.split()]
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            serve(*line.split()[1:]) if line.startswith("server") else main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    except (UserError, Refusal, OSError) as refused:  # of the server
        return CommandResult(1, "", str(refused))
    finally:
        sys.argv = argv
    return CommandResult(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class Command:
    """A command under test.

    Args:
        line: its arguments.
        look: what a user sees; anything that can be compared.
        before: commands before it; `killed N …` dies in its N-th operation.
        states: how many there are, with the old and the new one.
        again: what is called after a fault.
    """

    line: str
    look: Callable[[], Any]
    before: tuple[str, ...] = ()
    states: int = 2
    again: Callable[[], str] | None = None

    @property
    def next_line(self) -> str:
        """The command after a fault."""
        return self.again() if self.again else self.line

    def prepare(self) -> None:
        """Make what is there before, in the current folder."""
        write_photos(Path("spring"), ("ash", "birch"), each=4)
        write_photos(Path("summer"), ("cedar",), each=4, seed=1)
        write_stripes(Path("tiny.npz"))
        Path("grid.yaml").write_text(GRID)
        for line in self.before:
            if line.startswith("killed "):
                _, at, killed = line.split(" ", 2)
                with suppress(Killed), FaultyDisk(Path.cwd(), "kill", int(at)):
                    call(killed)
            else:
                done = call(line)
                assert not done.code, done.err


def versions(folder: str = "birds") -> Any:
    if not Path(folder).exists() or Store(Path(folder)).is_new:
        return None
    rows = ContinualClassifier(folder).history()
    assert not any(row["damaged"] for row in rows)
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in rows]


def retrain_again() -> str:
    unfinished = Path("birds/learning/session.json").exists()
    return "learn birds --resume --quiet --no-report" if unfinished else RETRAIN


def result() -> Any:
    there = Path("run/result.json").exists()
    return decisive(benchmark.load_result("run")) if there else None


def run_again() -> str:
    return "resume run --quiet" if Path("run/config.json").exists() else RUN


def sorted_photos() -> Any:
    """Whether the sort is over; and all photos, wherever they are."""
    is_over = Path("sorted").exists() and not Path("sorted/.sorting/sort.json").exists()
    folders = [folder for folder in Path().glob("s*") if folder.is_dir()]
    photos = {path.read_bytes() for folder in folders for path in folder.rglob("*.png")}
    return is_over and Path("sorted/decisions.csv").exists(), photos


class EngineHere(Engine):
    """Runs jobs in this thread."""

    def __init__(self) -> None:
        super().__init__(lambda number, place: None, 1, 0)  # type: ignore[arg-type,return-value]

    def start(self, jobs: Sequence[SweepJob], report: Report) -> None:
        for job in jobs:
            report(job, attempt(job), 1)


def sweep_results() -> Any:
    if not Path("sweep/sweep.json").exists():
        return {}
    found = Sweep.load("sweep").results()
    return {row: [entry["accuracy"] for entry in entries] for row, entries in found.items()}


# The server. ---------------------------------------------------------------------------------


class WorkerHere(LearnWorker):
    """Runs sessions in this thread."""

    def prepare(self) -> Any:
        pass

    def learn(self, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        carry_out(order, events.append)
        yield from events


class StoppedByErrors(threading.Event):
    """Whether a server is stopped: instead of waiting to try again, it is."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


def serve(action: str, *names: str) -> None:
    """Start a server, which runs what waits, and carry out one request."""
    settings = ServeSettings(Path("birds"), "nano", photos=Path("kept"), reports=False)
    service = Service(settings, WorkerHere())
    service.learning._stopped = StoppedByErrors()
    with service.private.opened():
        service.jobs.load()
        service.archive.write_list()
        service.review.load(keep=None)
        service.learning.run_jobs()
        REQUESTS[action](service, *names)


def teach(service: Service, folder: str, name: str) -> None:
    request: Any = SimpleNamespace(state=SimpleNamespace(request_id="1"))
    with learn.upload_folder(service, request) as upload:
        lesson = Lesson(upload, "instant")
        for number, path in enumerate(sorted(Path(folder).rglob("*.png"))):
            place_file(path, inside(upload, PHOTOS, str(number)), copy=True)
            lesson.photos.append(TaughtPhoto(f"{PHOTOS}/{number}", path.name, name))
        started = learn.begin(service, lesson)
    service.learning.run_jobs()
    job = service.jobs.get(started.id)
    assert job is not None
    if job.state != "done":
        raise UserError(f"{job.state}: {job.error}")


def keep(service: Service) -> None:
    """Store photos in the review queue."""
    classifier = ContinualClassifier("birds")
    service.review.switch(on=True)
    for path in sorted(Path("summer").rglob("*.png")):
        service.review._keep(classifier.predict(path), np.zeros(2), path.read_bytes())


REQUESTS: dict[str, Callable[..., object]] = {
    "start": lambda service: None,
    "keep": keep,
    "remove": lambda service: service.review.remove(list(service.review._photos)),
    "teach": teach,
    "rename": lambda service, old, new: history.rename(history.RenameIn(old=old, new=new), service),
    "merge": lambda service, into, *names: history.merge(
        history.MergeIn(classes=list(names), into=into), service
    ),
    "forget": lambda service, name: history.forget(history.ForgetIn(name=name), service),
    "undo": lambda service, to: history.undo(history.UndoIn(to=int(to)), service),
}


def stored_photos() -> Any:
    """What is known, and which photos of it are missing."""
    return versions(), [p for p in Path("kept").glob("*.png") if not p.stat().st_size]


def queue() -> int:
    """How many photos the review queue has."""
    return len([path for path in Path("birds-serving").glob("unsure/[0-9a-f]*") if not path.suffix])


def teach_again() -> str:
    """A job that was accepted goes on when a server starts."""
    jobs = [json.loads(file.read_text()) for file in Path("birds-serving/jobs").glob("*/job.json")]
    is_accepted = any(job["state"] in ("waiting", "running", "done") for job in jobs)
    return "server start" if is_accepted else "server teach summer cedar"


def cheap(patch: pytest.MonkeyPatch) -> None:
    """What takes long is done once or not at all: figures, graphs, processes."""
    from hashprompt.photos.onnx import export
    from hashprompt.photos.report import page
    from hashprompt.report import html

    patch.setattr(page, "page_figure", lambda *args, **named: None)
    patch.setattr(html, "FIGURES", {"timings": lambda result: None})
    patch.setattr("hashprompt.sweeps.engines.make_engine", lambda *args, **named: EngineHere())
    made = []

    def onnx_model(graph: Any, size: int, make: Any = export.onnx_model) -> Any:
        made.extend([] if made else [make(graph, size)])
        return made[0]

    patch.setattr(export, "onnx_model", onnx_model)


COMMANDS = {
    "learn, the first": Command(LEARN, versions),
    "learn": Command(MORE, versions, (LEARN,)),
    "learn with training": Command(TRAINING, versions, (LEARN,), states=3),
    "learn --resume": Command(
        "learn birds --resume --quiet --no-report", versions, (LEARN, f"killed 120 {TRAINING}")
    ),
    "rename": Command("rename birds ash oak", versions, (LEARN,)),
    "merge": Command("merge birds ash birch --into tree --quiet", versions, (LEARN, MORE)),
    "forget": Command("forget birds ash --quiet", versions, (LEARN,)),
    "forget --retrain": Command(RETRAIN, versions, (LEARN, MORE), states=3, again=retrain_again),
    "undo": Command("undo birds --to 1", versions, (LEARN, MORE)),
    "export": Command("export birds exported", lambda: versions("exported"), (LEARN,)),
    "export to ONNX": Command(
        "export birds graph --format onnx", lambda: Path("graph").exists(), (LEARN,)
    ),
    "sort": Command("sort birds summer --into sorted --quiet", sorted_photos, (LEARN,)),
    "sort --copy": Command(
        "sort birds summer --into sorted --copy --quiet", sorted_photos, (LEARN,)
    ),
    "sort --move": Command(
        "sort birds summer --into sorted --move --quiet", sorted_photos, (LEARN,)
    ),
    "run": Command(RUN, result, (FIRST,), again=run_again),
    "resume": Command("resume run --quiet", result, (FIRST, f"killed 40 {RUN}")),
    "resume, finished": Command("resume run --quiet", result, (RUN,), states=1),
    "sweep": Command("sweep grid.yaml --out sweep --quiet", sweep_results, (FIRST,), states=3),
    "server: teach": Command(TAUGHT, stored_photos, (LEARN,), again=teach_again),
    "server: rename": Command("server rename cedar oak", stored_photos, (LEARN, TAUGHT)),
    "server: merge": Command("server merge tree ash cedar", stored_photos, (LEARN, TAUGHT)),
    "server: forget": Command("server forget cedar", stored_photos, (LEARN, TAUGHT)),
    "server: keep": Command("server keep", queue, (LEARN,), states=5),
    "server: remove": Command("server remove", queue, (LEARN, "server keep"), states=5),
    "server: undo": Command("server undo 1", stored_photos, (LEARN, TAUGHT)),
}
