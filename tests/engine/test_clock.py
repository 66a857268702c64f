"""Seconds of every phase, and those in which the process had a processor."""

from typing import Any

import pytest

from hashprompt.engine.clock import Clock


def test_both_clocks_go_to_the_phase_and_on_after_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"monotonic": 100.0, "process_time": 7.0}
    for name in now:
        monkeypatch.setattr(f"hashprompt.engine.clock.time.{name}", lambda name=name: now[name])

    def pass_by(seconds: float, cpu: float) -> None:
        now["monotonic"] += seconds
        now["process_time"] += cpu

    timings: list[dict[str, Any]] = []
    clock = Clock(timings)
    clock.start(0, "wtp")
    pass_by(2.0, 1.5)
    clock.stop()
    pass_by(1.0, 0.25)
    clock.count(8)
    clock.stop()
    assert timings == [
        {"task": 0, "phase": "wtp", "seconds": 3.0, "cpu_seconds": 1.75, "images": 8}
    ]
    resumed = Clock(timings)
    pass_by(5.0, 5.0)  # nobody's
    resumed.start(0, "wtp")
    pass_by(1.0, 1.0)
    resumed.stop()
    assert (timings[0]["seconds"], timings[0]["cpu_seconds"]) == (4.0, 2.75)
