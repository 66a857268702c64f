"""CPU seconds of answers over those of `import torch`, taken in turns in one run.

    python benchmarks/start.py [--repeats 5] [--out docs/results/start.json]

It teaches the embedded nano a few pictures, exports the classifier to ONNX, and then measures
processes one after the other, round by round, so that a busy machine slows all of them alike. The
least of all rounds counts. User and system time of the whole process, one thread.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
from PIL import Image
from startup import measure

from hashprompt import ContinualClassifier

SOURCE = Path(__file__).parents[1] / "src"
GOALS = {"predict, ONNX": 0.5, "predict, torch": 2.5}
PACKAGES = ("torch", "timm", "onnxruntime", "numpy", "pillow")


def prepare(folder: Path) -> None:
    """`zoo`, `zoo-onnx` and `a.png` in a folder."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (40, 32, 32, 3), dtype=np.uint8)
    pictures[20:, :, :, 0] //= 4
    zoo = ContinualClassifier(folder / "zoo", backbone="nano", epochs=1)
    zoo.learn(pictures, labels=["grey"] * 20 + ["blue"] * 20, report=False, quiet=True)
    zoo.export(folder / "zoo-onnx", format="onnx")
    Image.fromarray(pictures[0]).resize((640, 480)).save(folder / "a.png")


def commands(folder: Path) -> dict[str, list[str]]:
    program = ["-m", "hashprompt"]
    photo = str(folder / "a.png")
    return {
        "import torch": ["-c", "import torch"],
        "predict, ONNX": [*program, "predict", str(folder / "zoo-onnx"), photo],
        "predict, torch": [*program, "predict", str(folder / "zoo"), photo],
        "--help": [*program, "--help"],
        "--version": [*program, "--version"],
        "methods": [*program, "methods"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for _ in range(chosen.repeats):
            for command, arguments in commands(Path(name)).items():
                seconds.setdefault(command, []).append(measure(arguments, SOURCE, 1)[0])
    torch = min(seconds["import torch"])
    print("| command | CPU s | over `import torch` | goal |\n|---|---:|---:|---:|")
    for command, taken in seconds.items():
        goal = GOALS.get(command, "")
        print(f"| {command} | {min(taken):.2f} | {min(taken) / torch:.2f} | {goal} |")
    if chosen.out:
        found = {
            "seconds": {k: [round(s, 3) for s in taken] for k, taken in seconds.items()},
            "over_import_torch": {k: round(min(v) / torch, 3) for k, v in seconds.items()},
            "goals": GOALS,
            "python": platform.python_version(),
            "packages": {package: version(package) for package in PACKAGES},
            "cores": os.cpu_count(),
        }
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
