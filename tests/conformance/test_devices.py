"""Every method on two CPU devices (Gloo): the devices hold the same learner at every moment.

The engine compares them bit by bit whenever it saves, here after every step.
"""

import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

import pytest
from test_contracts import MORE

from hashprompt.checks.example import Example
from hashprompt.methods.registry import known_methods

PATIENCE = 120  # seconds until two processes count as waiting for each other for ever


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fork(rank: int, port: int, name: str, scenario: str, log: Path) -> int:
    """A copy of this process as one of two devices; importing torch anew takes many seconds."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(target, 1)
        os.dup2(target, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        places = {"LOCAL_RANK": rank, "NODE_RANK": 0, "WORLD_SIZE": 2, "MASTER_PORT": port}
        os.environ |= {k: str(v) for k, v in places.items()} | {"MASTER_ADDR": "127.0.0.1"}
        devices = {"device": "cpu", "devices": 2}
        example = Example(name, "paper", scenario, {**MORE.get(name, {}), **devices})
        assert example.trainer.replicas.count == 2
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_on_two(name: str, scenario: str, folder: Path) -> None:
    """Raises with what was printed unless both devices come to the end."""
    port = free_port()
    logs = [folder / f"{rank}.log" for rank in (0, 1)]
    running = {fork(rank, port, name, scenario, logs[rank]): rank for rank in (0, 1)}
    started, codes = time.monotonic(), {}
    while running and time.monotonic() - started < PATIENCE:
        for pid in list(running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[running.pop(pid)] = os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert not running, f"still waiting after {PATIENCE} s: {[log.read_text() for log in logs]}"
    assert codes == {0: 0, 1: 0}, [log.read_text() for log in logs]


DEFAULT = ("hash", "smope")  # the others in the slow suite


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in DEFAULT else pytest.mark.slow)
        for name in known_methods()
    ],
)
def test_two_devices_hold_the_same_learner(name: str, tmp_path: Path) -> None:
    scenario = known_methods()[name].info.scenarios[0]
    run_on_two(name, scenario, tmp_path)
