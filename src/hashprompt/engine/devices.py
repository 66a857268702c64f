"""Where a run computes."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

from hashprompt.errors import UserError
from hashprompt.options.run import RunOptions

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def launch(options: RunOptions) -> "Fabric":
    """Devices and precision as the options say, or a reason in words."""
    cores = os.cpu_count() or 1
    if options.devices > max(cores, 2) and single_device(options).type == "cpu":
        raise unusable(options, f"this machine has {cores} processor cores and no other device.")
    from lightning_fabric import Fabric  # seconds to import, which an answer need not wait for

    try:
        fabric = Fabric(
            accelerator=options.device,
            devices=options.devices,
            precision=options.precision,
            strategy="ddp" if options.devices > 1 else "auto",
        )
        fabric.launch()
    except Exception as error:  # Lightning raises many types for hardware that is not there
        raise unusable(options, str(error).splitlines()[0]) from error
    return fabric


def unusable(options: RunOptions, reason: str) -> UserError:
    return UserError(
        f"Cannot use device={options.device}, devices={options.devices}, precision="
        f"{options.precision} here: {reason} With device=auto it takes what is there."
    )


def single_device(options: RunOptions) -> torch.device:
    """The device that `launch` would take, for answering without a launch."""
    there = {"mps": torch.backends.mps.is_available(), "cuda": torch.cuda.is_available()}
    if options.device == "auto":
        return torch.device(next((name for name, here in there.items() if here), "cpu"))
    if not there.get(options.device, True):
        raise unusable(options, "there is none.")
    return torch.device(options.device)


def autocast(options: RunOptions, device: torch.device) -> AbstractContextManager[object]:
    """The precision of the options, for a pass without a launch."""
    if options.precision == "32":
        return nullcontext()
    dtype = torch.bfloat16 if options.precision == "bf16-mixed" else torch.float16
    return torch.autocast(device.type, dtype)
