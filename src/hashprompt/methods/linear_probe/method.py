"""The linear probe: one logistic regression on the frozen features of all images so far.

The solution without continual learning: no image is stored, but a feature of every image is, and
after each task the classifier is fitted to all of them again. So nothing is forgotten, and what is
stored grows with the images.
"""

import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Method, Phase, Prediction, TaskView
from hashprompt.methods.linear_probe.config import LinearProbeConfig
from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.precision import exact


class LinearProbe(Method[LinearProbeConfig]):
    """Logistic regression on stored features."""

    keeps = ("features", "labels")
    stores = "statistics: features; head: weight bias"

    def __init__(self, config: LinearProbeConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        # (N, D) of all images so far
        self.features: Tensor = nn.Buffer(torch.zeros(0, backbone.dim))
        self.labels: Tensor = nn.Buffer(torch.zeros(0, dtype=torch.long))  # (N,)
        self.weight: Tensor = nn.Buffer(torch.zeros(0, backbone.dim))  # (C, D)
        self.bias: Tensor = nn.Buffer(torch.zeros(0))  # (C,)

    def phases(self, task: TaskView) -> list[Phase]:
        return [Phase("fit", work=lambda: self._learn(task))]

    def _learn(self, task: TaskView) -> None:
        grow_buffer(self, "features", task.features())
        grow_buffer(self, "labels", task.labels)
        self.weight, self.bias = fit_logistic(self.features, self.labels, self.config.l2)

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        plain = self.backbone(images) if plain is None else plain
        with torch.autocast(plain.device.type, enabled=False):  # as precise as the fit
            return Prediction(F.linear(plain.float(), self.weight, self.bias))


def fit_logistic(features: Tensor, labels: Tensor, l2: float) -> tuple[Tensor, Tensor]:
    """W (C, D) and b (C,) that minimise Σ −log softmax(W f + b)_y + l2/2 ‖W‖².

    Args:
        features: (N, D).
        labels: (N,) of the classes 0 … C − 1.
        l2: strength of the penalty.
    """
    from sklearn.linear_model import LogisticRegression  # on use: no other method needs it

    classes = int(labels.max()) + 1
    if classes == 1:
        return features.new_zeros(1, features.shape[1]), features.new_zeros(1)
    centre = features.mean(0)  # the same optimum, since b is free, and a shorter way to it
    rows = exact(features - centre).cpu().numpy()
    # Of two classes scikit-learn fits the difference w_1 − w_0 = 2 w_1, penalised as one row.
    two = classes == 2
    model = LogisticRegression(C=(2 if two else 1) / l2, tol=1e-7, max_iter=10_000)
    with threadpool_limits(1):  # several threads add up in another order each time
        model.fit(rows, labels.cpu().numpy())
    weight, bias = (torch.from_numpy(x).to(features) for x in (model.coef_, model.intercept_))
    if two:
        weight, bias = torch.cat((-weight, weight)) / 2, torch.cat((-bias, bias)) / 2
    return weight, bias - weight @ centre
