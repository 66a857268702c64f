"""A classifier of own photos: how long it learns, and what an answer costs over the bare ViT.

    python benchmarks/photos.py photos/2026-05 --weights vit_tiny.safetensors

Learns the folder into a temporary classifier, then asks about its photos one by one. Times of the
answer and of timm's forward pass are taken in turns, so that a busy machine disturbs both.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from hashprompt import ContinualClassifier
from hashprompt.backbone import load_backbone


def milliseconds(function, *arguments) -> float:
    started = time.perf_counter()
    function(*arguments)
    return 1000 * (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--weights")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--questions", type=int, default=60)
    args = parser.parse_args()
    options = {"image_size": args.image_size} if args.image_size else {}
    folder = Path(tempfile.mkdtemp()) / "model"
    classifier = ContinualClassifier(folder, backbone=args.weights, **options)
    print(classifier.plan(args.photos, effort=args.effort).text())
    learned = classifier.learn(args.photos, report=False, quiet=True, effort=args.effort)
    print(learned.text())
    for phase, seconds in learned.changes.to_dict()["seconds_by_phase"].items():
        print(f"  {phase}: {seconds:.1f} s")

    header = classifier._store.header()["backbone"]
    vit = load_backbone(header["name"], header["image_size"]).model.vit  # timm's own model
    image = torch.randn(1, 3, header["image_size"], header["image_size"])
    files = sorted(p for p in args.photos.glob("*/*") if p.is_file())[::7][: args.questions]
    plain, asked = [], []
    with torch.no_grad():
        for _ in range(5):
            vit(image), classifier.predict(files[0])
        for file in files:
            plain.append(milliseconds(vit, image))
            asked.append(milliseconds(classifier.predict, file))
    ratio = median(a / p for a, p in zip(asked, plain, strict=True))
    print(f"timm forward {median(plain):.1f} ms, answer {median(asked):.1f} ms, ratio {ratio:.2f}")

    command = [sys.executable, "-m", "hashprompt", "predict", str(folder), str(files[0])]
    cold = milliseconds(subprocess.run, command)
    empty = milliseconds(subprocess.run, [sys.executable, "-c", "import torch, timm"])
    print(f"cold start {cold / 1000:.1f} s, of which importing torch and timm {empty / 1000:.1f} s")


if __name__ == "__main__":
    main()
