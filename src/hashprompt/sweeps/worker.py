"""A process of the local engine: jobs come in as lines of JSON, outcomes go out in the same way.

One process runs many cells, since importing torch takes longer than a small cell. If whoever
started it is gone, the cell in hand is saved and the process ends.
"""

import json
import os
import queue
import signal
import sys
import threading
from dataclasses import asdict

from hashprompt.sweeps.jobs import Job, attempt

OUTPUT, ERRORS = 1, 2  # numbers of the standard files


def main() -> None:
    answers = os.fdopen(os.dup(OUTPUT), "w", encoding="utf-8")
    os.dup2(ERRORS, OUTPUT)  # what libraries print is no answer
    jobs: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            jobs.put(line)
        jobs.put(None)
        os.kill(os.getpid(), signal.SIGTERM)  # nobody waits for the cell in hand

    # Between two cells a request to stop means to go; in a cell the trainer handles it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    threading.Thread(target=listen, daemon=True).start()
    while (line := jobs.get()) is not None:
        outcome = attempt(Job(**json.loads(line)))
        answers.write(json.dumps(asdict(outcome)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
