"""Cost of the Gaussians of classes: adding them, and the discriminant that is read off them.

    python benchmarks/gaussians.py

Read the ratios: adding a task's classes at once over adding them one by one, and a discriminant
made in chunks over one whose matrices are all made together (as before version 0.2).
"""

import multiprocessing
import resource
import time
from collections.abc import Callable

import torch
from torch import Tensor

from hashprompt.parts.discriminant import Discriminant
from hashprompt.parts.gaussians import ClassGaussians

DIM, IMAGES = 768, 20  # of ViT-B; images per class


def adding(classes: int) -> tuple[float, float]:
    """CPU seconds for so many classes one by one, and at once."""
    features = torch.randn(classes * IMAGES, DIM)
    labels = torch.arange(classes).repeat_interleave(IMAGES)

    def one_by_one() -> None:
        stats = ClassGaussians(DIM, "covariance")
        for label in range(classes):
            stats.add(features, labels, (label,))

    def at_once() -> None:
        ClassGaussians(DIM, "covariance").add(features, labels, range(classes))

    return cpu_seconds(one_by_one), cpu_seconds(at_once)


def cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def whole(means: Tensor, covariances: Tensor, shrinkage: float, ridge: float) -> Tensor:
    """The matrices of a discriminant, all at once."""
    shared = covariances.mean(0, dtype=torch.float64)
    eye = torch.eye(len(shared), dtype=torch.float64)
    epsilon = ridge * shared.diagonal().mean()
    matrices = shrinkage * covariances.double() + (1 - shrinkage) * shared + epsilon * eye
    lower = torch.linalg.cholesky(matrices)
    return torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False)


def peak_memory(make: Callable[..., object], cells: int, dim: int) -> float:
    """Most MB that making a discriminant takes, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (make, cells, dim))


def _peak(make: Callable[..., object], cells: int, dim: int) -> float:
    means, covariances = torch.randn(cells, dim), torch.eye(dim).repeat(cells, 1, 1)
    make(means[:2], covariances[:2], 0.05, 0.01)  # what libraries take once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = make(means, covariances, 0.05, 0.01)
    del kept
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024  # Linux: KB


def main() -> None:
    cells, dim = 100, 384
    # First: a process that was started keeps the peak of the one that started it.
    more, less = (peak_memory(make, cells, dim) for make in (whole, Discriminant))
    adding(5)  # first calls of the library are slower
    print("| what | before | now | ratio |\n|---|---|---|---|")
    for classes in (100, 200):
        before, now = adding(classes)
        row = f"| add {classes} classes, D = {DIM} | {before:.1f} CPU s | {now:.1f} CPU s"
        print(f"{row} | {now / before:.2f} |")
    row = f"| discriminant of {cells} classes, D = {dim} | {more:.0f} MB | {less:.0f} MB"
    print(f"{row} | {less / more:.2f} |")
    print(f"\nOne matrix of float64 per class is {cells * dim**2 * 8 / 2**20:.0f} MB.")


if __name__ == "__main__":
    main()
