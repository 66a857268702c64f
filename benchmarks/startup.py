"""CPU seconds of commands over those of `import torch`, and their peak memory.

    python benchmarks/startup.py [--rounds 5] [--out docs/results/start.json]

A classifier on the embedded nano learns a few images and is exported to ONNX; both versions then
classify one image. Commands alternate, so that a busy machine affects all of them, and the minimum
of all rounds counts: user and system time of the whole process, one thread.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from subprocess import DEVNULL, Popen

import numpy as np
from PIL import Image

from hashprompt import ContinualClassifier

LINES = (
    *("--version", "--help", "run --help", "methods", "methods hash", "streams", "backbones"),
    *("data list", "run -m hsah", "run --set top_k=0", "compare nowhere", "history nowhere"),
    *("diff nowhere 1 2", "predict nowhere x.jpg"),
    *("predict zoo-onnx a.png", "predict zoo a.png"),
)
GOALS = {"predict zoo-onnx a.png": 0.5, "predict zoo a.png": 2.5}  # others: 0.2
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


def measure(arguments: list[str], folder: Path) -> tuple[float, float]:
    """CPU seconds and the peak of memory in MB of one process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    process = Popen(command, env=environment, cwd=folder, stdout=DEVNULL, stderr=DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    megabytes = used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return used.ru_utime + used.ru_stime, megabytes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    commands = {
        "import torch": ["-c", "import torch"],
        "import hashprompt": ["-c", "import hashprompt"],
        **{line: ["-m", "hashprompt", *line.split()] for line in LINES},
    }
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for _ in range(args.rounds):
            for command, arguments in commands.items():
                found.setdefault(command, []).append(measure(arguments, Path(name)))
    least = {command: min(cpu for cpu, _ in runs) for command, runs in found.items()}
    memory = {command: max(peak for _, peak in runs) for command, runs in found.items()}
    print("| command | CPU s | over `import torch` | MB | goal |\n|---|---:|---:|---:|---:|")
    for command, cpu in least.items():
        ratio = cpu / least["import torch"]
        goal = GOALS.get(command, 0.2)
        print(f"| `{command}` | {cpu:.2f} | {ratio:.2f} | {memory[command]:.0f} | {goal} |")
    if args.out:
        values = {
            "seconds": {command: round(cpu, 3) for command, cpu in least.items()},
            "memory_mb": {command: round(peak) for command, peak in memory.items()},
            "python": platform.python_version(),
            "packages": {package: version(package) for package in PACKAGES},
            "cores": os.cpu_count(),
        }
        args.out.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
