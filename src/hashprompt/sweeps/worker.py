"""A process of the local engine: it attempts one job after the other."""

import traceback
from dataclasses import asdict

from hashprompt.engine.interrupts import Interrupted
from hashprompt.errors import UserError, shortened
from hashprompt.loggers import make_loggers
from hashprompt.runs.plan import plan_of
from hashprompt.runs.worker_process import carry_out_orders
from hashprompt.sweeps.cell import run_cell
from hashprompt.sweeps.folder import open_folder
from hashprompt.sweeps.jobs import Job, Outcome


def attempt(job: Job) -> Outcome:
    """Run a job in this process; errors are returned, not raised."""
    try:
        run_cell(open_folder(job.folder), plan_of(job.plan), job.ask, make_loggers(job.log))
    except Interrupted:
        return Outcome("stopped")
    except UserError as error:
        return Outcome("refused", str(error))
    except Exception as error:  # one failing cell stops nothing
        text = f"{type(error).__name__}: {shortened(error, 500)}"
        return Outcome("failed", text, traceback.format_exc())
    return Outcome("done")


if __name__ == "__main__":
    carry_out_orders(lambda order, report: report(asdict(attempt(Job(**order)))))
