"""How covariances of classes with few and many images are best pooled, where they share one.

    python benchmarks/pooling.py cifar100_100x30.npz vit_tiny.safetensors

Plain features of 50 classes of held-out training images; 3 to 48 images of a class are drawn, other
numbers for every class. Each class counts alike, as in the product, or by its degrees of freedom
(n − 1), which is what one Gaussian with the same covariance for all classes would estimate.
Accuracy of the linear discriminant, mean over 20 draws, by the ridge.
"""

import argparse
from pathlib import Path

import torch

from hashprompt.parts.discriminant import Discriminant
from hashprompt.runs import benchmark
from hashprompt.runs.plan import plan

NUMBERS, DRAWS, RIDGES = (3, 6, 12, 24, 48), 20, (0.1, 0.3, 1.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", help="npz file of CIFAR-100")
    parser.add_argument("weights")
    args = parser.parse_args()
    options = {"classes": 50, "tasks": 1, "holdout": 0.3, "image_size": 112}
    planned = plan("gaussian-head", f"npz:{args.data}", args.weights, 0, options=options)
    trainer = benchmark.prepare(planned).trainer(Path("runs"))
    (task,) = trainer.stream.tasks
    features, labels = trainer.passes.plain_features(task.train).double(), task.train.labels
    asked, right = trainer.passes.plain_features(task.test), task.test.labels
    found: dict[tuple[str, float], list[float]] = {}
    for draw in range(DRAWS):
        chance = torch.Generator().manual_seed(draw)
        means, covariances, freedom = [], [], []
        for label in task.classes:
            rows = (labels == label).nonzero()[:, 0]
            number = NUMBERS[int(torch.randint(len(NUMBERS), (), generator=chance))]
            own = features[rows[torch.randperm(len(rows), generator=chance)[:number]]]
            means.append(own.mean(0))
            covariances.append(own.T.cov())
            freedom.append(number - 1.0)
        each, weights = torch.stack(covariances), torch.tensor(freedom).double()
        ways = {
            "classes alike": each.mean(0),
            "by degrees of freedom": torch.tensordot(weights / weights.sum(), each, 1),
        }
        for way, shared in ways.items():
            for ridge in RIDGES:
                scores = Discriminant(torch.stack(means), shared[None], 0.0, ridge).scores(asked)
                said = torch.tensor(task.classes)[scores.argmax(1)]
                found.setdefault((way, ridge), []).append(
                    100 * float((said == right).double().mean())
                )
    print("| pooled | " + " | ".join(f"ridge {ridge:g}" for ridge in RIDGES) + " |")
    print("|---|" + "---|" * len(RIDGES))
    for way in ways:
        cells = (torch.tensor(found[way, ridge]).mean() for ridge in RIDGES)
        print(f"| {way} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
