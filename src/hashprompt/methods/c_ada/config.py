"""Options of C-ADA."""

from hashprompt.methods import MethodConfig, kinds, register


@register("c-ada", paper="ECCV 2024, arXiv 2407.10281", family="adapters")
class CAdaConfig(MethodConfig):
    """C-ADA: adapters widened by every task, new units orthogonal to old ones (reconstructed).

    Args:
        lr: learning rate (Adam)
        attention_width: hidden units per task next to attention
        mlp_width: hidden units per task next to the MLP
        adapter_scale: λ, scale of the output of the adapters
        orthogonality: δ, weight of the overlap of new with old hidden units
    """

    epochs: kinds.Count = 20
    lr: kinds.Positive = 1e-3
    schedule: kinds.Schedule = "cosine"
    attention_width: kinds.Count = 40
    mlp_width: kinds.Count = 20
    adapter_scale: kinds.Positive = 0.1
    orthogonality: kinds.NonNegative = 1.0
