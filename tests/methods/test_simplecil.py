"""SimpleCIL and the parts that compare directions."""

from functools import partial

import fakes
import numpy as np
import torch
from fakes import DIM
from torch import Tensor, tensor

from hashprompt.parts.heads import CosineHead, Prototypes

learned = partial(fakes.learned, "simplecil")

close = torch.testing.assert_close


def test_a_prototype_is_the_mean_over_all_images_of_a_class_in_all_domains() -> None:
    prototypes = Prototypes(2)
    prototypes.add(tensor([[1.0, 0.0], [3.0, 2.0], [0.0, 5.0]]), tensor([0, 0, 1]))
    prototypes.add(tensor([[8.0, 1.0], [1.0, 1.0]]), tensor([0, 2]))
    close(prototypes.means(), tensor([[4.0, 1.0], [0.0, 5.0], [1.0, 1.0]]))


def test_answers_are_cosines_with_class_means() -> None:
    method, tasks = learned((0, 1), (2, 3))
    features = np.concatenate([task.features().numpy() for task in tasks])
    labels = np.concatenate([task.labels.numpy() for task in tasks])
    query = method.backbone(tasks[0].images[:3])
    expected = np.zeros((3, 4))
    for i, f in enumerate(query.numpy()):
        for c in range(4):
            mean = features[labels == c].mean(0)
            expected[i, c] = f @ mean / np.sqrt((f @ f) * (mean @ mean))
    for plain in (None, query):
        logits = method.predict(tasks[0].images[:3], plain).logits
        close(logits, tensor(expected).float(), atol=1e-5, rtol=1e-5)


def test_one_task_or_many_in_any_order_give_the_same_prototypes() -> None:
    features, labels = torch.randn(12, DIM), torch.arange(4).repeat(3)

    def after(*parts: Tensor) -> Tensor:
        prototypes = Prototypes(DIM)
        for rows in parts:
            prototypes.add(features[rows], labels[rows])
        return prototypes.means()

    order = torch.randperm(12)
    close(after(*order.split(5)), after(torch.arange(12)))


def test_the_cosine_head_scales_cosines() -> None:
    head = CosineHead(2)
    head.grow(2)
    head.weight.data = tensor([[0.0, 3.0], [4.0, 3.0]])
    head.scale.data.fill_(10.0)
    close(head(tensor([[0.0, 2.0]])), tensor([[10.0, 6.0]]))
