"""Images per second that the loader gives, over those that a training step takes.

    python benchmarks/loader.py --stream npz:cifar100_100x30.npz --backbone vit_tiny.safetensors
        [--image-size 224] [--batch 16] [--rounds 5] [--set transform=hide] [--set memory_gb=0]

The loader is everything between the data set and the ViT's input: choosing rows, decoding where
images are on disk, window, resizing, normalisation. Rounds alternate between the things measured,
so that a noisy machine hits all of them alike; what is printed are medians.
"""

import argparse
from statistics import median

import torch
import yaml
from speed import learner, seconds

from hashprompt.backbone import load_backbone
from hashprompt.checks.steps import train_step
from hashprompt.data.streams.stream import load_stream
from hashprompt.engine.optimization import make_optimizer
from hashprompt.engine.views import views_of
from hashprompt.methods.base import Batch
from hashprompt.options import build, split_options
from hashprompt.options.run import RunOptions
from hashprompt.options.stream import StreamOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stream", required=True)
    parser.add_argument("--backbone", default="nano")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    given = {k: yaml.safe_load(v) for k, _, v in (item.partition("=") for item in args.set)}
    of_stream, of_run = split_options(given, StreamOptions, RunOptions)
    stream = load_stream(args.stream, build(StreamOptions, of_stream), seed=0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loaded = load_backbone(args.backbone, args.image_size)
    views = views_of(build(RunOptions, of_run), loaded.preprocessing, stream)
    method, task = learner(loaded.model.to(device), device)
    wtp = next(phase for phase in method.phases(task) if phase.name == "wtp")
    optimizer = make_optimizer(wtp)
    images = stream.tasks[0].train.images

    def rows() -> torch.Tensor:
        return torch.randint(len(images), (args.batch,))

    def load_train() -> torch.Tensor:
        return views.train(images[rows()].to(device))

    def load_clean() -> torch.Tensor:
        return views.clean(images[rows()].to(device))

    batch = Batch(load_train(), torch.randint(50, 60, (args.batch,), device=device))

    def step() -> None:
        train_step(wtp, batch, optimizer)

    work = {"train view": load_train, "clean view": load_clean}
    for function in (step, *work.values()):
        function()
    rates: dict[str, list[float]] = {name: [] for name in ("step", *work)}
    for _ in range(args.rounds):
        for name, function in {"step": step, **work}.items():
            rates[name].append(args.batch / seconds(function))
    size = loaded.preprocessing.image_size
    for note in stream.notes:
        print(note)
    print(f"{stream.name}, {size} px, batch {args.batch}, {args.set or 'defaults'}")
    print(f"a training step takes {median(rates['step']):,.1f} images/s")
    print("| loader | images/s | ÷ training step |\n|---|---|---|")
    for name in work:
        ratio = median(a / b for a, b in zip(rates[name], rates["step"], strict=True))
        print(f"| {name} | {median(rates[name]):,.0f} | {ratio:.1f} |")


if __name__ == "__main__":
    main()
