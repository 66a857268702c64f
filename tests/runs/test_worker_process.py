"""A worker process: orders in, events out, whatever else it prints, and however it ends."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hashprompt.runs.worker_process import WorkerEnded, WorkerProcess
from hashprompt.storage.files import inside

WORKER = """
import os, signal, sys, time
from hashprompt.runs.worker_process import carry_out_orders

def carry_out(order, report):
    print("a library's print")
    print("a warning", file=sys.stderr)
    if order["what"] == "die":
        os._exit(3)
    if order["what"] == "wait":
        saved = []
        signal.signal(signal.SIGTERM, lambda number, frame: saved.append(True))
        report({"began": True})
        while not saved:
            time.sleep(0.01)
        report({"saved": True})
    for number in range(order.get("count", 0)):
        report({"number": number, "name": "café"})

carry_out_orders(carry_out)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    (tmp_path / "worker_under_test.py").write_text(WORKER)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = WorkerProcess("worker_under_test", environment, inside(tmp_path, "log.txt"))
    yield process
    process.stop(kill_after=10)


def test_events_of_an_order_are_what_it_reports_and_not_what_it_prints(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    for count in (2, 1):
        events = list(worker.carry_out({"what": "count", "count": count}))
        assert events == [{"number": n, "name": "café"} for n in range(count)]
    assert "a library's print" in (tmp_path / "log.txt").read_text()
    assert "a warning" in (tmp_path / "log.txt").read_text()


def test_a_process_that_died_is_started_again(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerEnded) as ended:
        list(worker.carry_out({"what": "die"}))
    assert ended.value.code == 3
    assert len(list(worker.carry_out({"what": "count", "count": 1}))) == 1


def test_the_order_in_hand_can_save_when_the_process_is_stopped(worker: WorkerProcess) -> None:
    events = worker.carry_out({"what": "wait"})
    assert next(events) == {"began": True}
    worker.stop()
    assert list(events) == [{"saved": True}]
    # Without an order in hand the process ends at once; the next order gets a new one.
    before = worker.start()
    assert before.poll() is None
    worker.stop()
    assert before.wait(timeout=30) == 0
    assert len(list(worker.carry_out({"what": "count", "count": 1}))) == 1
