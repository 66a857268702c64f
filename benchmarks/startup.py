"""CPU seconds of commands over those of `import torch`, and their peak memory.

    python benchmarks/startup.py [SRC ...]     # package sources to compare; default: this one

Ratios, not seconds: machines differ, and `import torch` is what the user would wait for anyway.
"""

import os
import sys
from pathlib import Path
from subprocess import DEVNULL, Popen

HERE = Path(__file__).parents[1] / "src"
COMMANDS = {
    "import hashprompt": ["-c", "import hashprompt"],
    **{
        f"hashprompt {line}": ["-m", "hashprompt", *line.split()]
        for line in (
            "--version",
            "--help",
            "run --help",
            "methods",
            "methods hash",
            "streams",
            "backbones",
            "data list",
            "run -m hsah",
            "run -s glyhps",
            "run -b vit_tinny",
            "run --set topk=3",
            "run --set top_k=0",
            "compare nowhere",
            "history nowhere",
            "undo nowhere",
            "diff nowhere 1 2",
            "predict nowhere x.jpg",
        )
    },
}


def measure(arguments: list[str], source: Path, repeats: int) -> tuple[float, float]:
    """CPU seconds, the least of some runs, and the peak of memory in MB."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    seconds, memory = [], []
    for _ in range(repeats):
        process = Popen(
            [sys.executable, *arguments], env=environment, stdout=DEVNULL, stderr=DEVNULL
        )
        _, _, used = os.wait4(process.pid, 0)
        seconds.append(used.ru_utime + used.ru_stime)
        memory.append(used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3))
    return min(seconds), max(memory)


def main() -> None:
    sources = [Path(place).resolve() for place in sys.argv[1:]] or [HERE]
    repeats = int(os.environ.get("REPEATS", "3"))
    torch, peak = measure(["-c", "import torch"], HERE, repeats)
    print(f"import torch: {torch:.2f} CPU s, {peak:.0f} MB, Python {sys.version.split()[0]}\n")
    print(f"| command | {' | '.join(f'{place}, × | MB' for place in sources)} |")
    print(f"|---|{'---:|---:|' * len(sources)}")
    for name, arguments in COMMANDS.items():
        found = [measure(arguments, place, repeats) for place in sources]
        cells = " | ".join(f"{cpu / torch:.2f} | {memory:.0f}" for cpu, memory in found)
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
