"""Where a run computes."""

from lightning_fabric import Fabric

from hashprompt.engine.settings import RunOptions
from hashprompt.errors import UserError


def launch(options: RunOptions) -> Fabric:
    """Devices and precision as the options say, or a reason in words."""
    try:
        fabric = Fabric(
            accelerator=options.device,
            devices=options.devices,
            precision=options.precision,
            strategy="ddp" if options.devices > 1 else "auto",
        )
        fabric.launch()
    except Exception as error:  # Lightning raises many types for hardware that is not there
        raise UserError(
            f"Cannot use device={options.device}, devices={options.devices}, precision="
            f"{options.precision} here: {str(error).splitlines()[0]} With device=auto it takes "
            "what is there."
        ) from error
    return fabric
