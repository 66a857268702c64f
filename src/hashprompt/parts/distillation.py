"""Learning from a teacher's answers."""

import torch.nn.functional as F
from torch import Tensor


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL(softmax(teacher/T) ‖ softmax(student/T)), the mean over images.

    Args:
        student: logits (B, C).
        teacher: logits (B, C).
        temperature: T; a higher one lets unlikely classes weigh more.
    """
    found, wanted = (F.log_softmax(logits / temperature, dim=1) for logits in (student, teacher))
    return F.kl_div(found, wanted, reduction="batchmean", log_target=True)
