"""Device and precision of a run."""

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

from hashprompt.errors import UserError
from hashprompt.options.run import RunOptions

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def launch(options: RunOptions) -> "Fabric":
    """Start the devices with the precision of the options.

    Raises:
        UserError: if this machine cannot.
    """
    cores = os.cpu_count() or 1
    if options.devices > max(cores, 2) and single_device(options).type == "cpu":
        raise unusable(options, f"this machine has {cores} processor cores and no other device.")
    from lightning_fabric import Fabric  # takes seconds to import; predictions do not need it

    try:
        fabric = Fabric(
            accelerator=options.device,
            devices=options.devices,
            precision=options.precision,
            strategy="ddp" if options.devices > 1 else "auto",
        )
        fabric.launch()
    except Exception as error:  # Lightning raises many types for missing hardware
        raise unusable(options, str(error).splitlines()[0]) from error
    return fabric


def unusable(options: RunOptions, reason: str) -> UserError:
    return UserError(
        f"Cannot use device={options.device}, devices={options.devices}, precision="
        f"{options.precision} here: {reason} device=auto uses what is available."
    )


def single_device(options: RunOptions) -> torch.device:
    """The device that `launch` would use, for predictions without a launch."""
    there = {"mps": torch.backends.mps.is_available(), "cuda": torch.cuda.is_available()}
    if options.device == "auto":
        return torch.device(next((name for name, here in there.items() if here), "cpu"))
    if not there.get(options.device, True):
        raise unusable(options, "no such device.")
    return torch.device(options.device)


def autocast(options: RunOptions, device: torch.device) -> AbstractContextManager[object]:
    """The precision of the options, for a forward pass without a launch."""
    if options.precision == "32":
        return nullcontext()
    dtype = torch.bfloat16 if options.precision == "bf16-mixed" else torch.float16
    return torch.autocast(device.type, dtype)


def describe_machine(device: torch.device) -> str:
    """What computed a result, e.g. `NVIDIA A100-SXM4-80GB` or `x86_64 CPU, 2 threads`."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {device.type.upper()}, {torch.get_num_threads()} threads"
