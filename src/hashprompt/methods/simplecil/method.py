"""SimpleCIL: the mean frozen feature of every class, compared by cosine. Nothing is trained.

Zhou et al., IJCV 2024. When a class returns in another domain, its prototype becomes the mean
over all its images so far, as in the nearest-mean baseline of RanPAC's public code.
"""

from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Method, Phase, Prediction, TaskView
from hashprompt.methods.simplecil.config import SimpleCILConfig
from hashprompt.parts.heads import Prototypes, cosine


class SimpleCIL(Method[SimpleCILConfig]):
    """Class prototypes."""

    stores = "head: prototypes.sums; statistics: prototypes.counts"

    def __init__(self, config: SimpleCILConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.prototypes = Prototypes(backbone.dim)

    def phases(self, task: TaskView) -> list[Phase]:
        learn = self.prototypes.add
        return [Phase("prototypes", work=lambda: learn(task.features(), task.labels))]

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        plain = self.backbone(images) if plain is None else plain
        return Prediction(cosine(plain, self.prototypes.means()))
