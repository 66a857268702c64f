"""A server under load: errors, differing answers and latency with many clients during training.

    python benchmarks/serving.py photos/ --backbone vit_tiny.safetensors [--questions 2000]

`photos` holds class folders. A third of the classes is known at the start; the others are taught in
sessions, one after the other, while requests arrive. Every answer is compared with that of
`hashprompt predict` for the same version. Then a single client sends one photo at a time, and the
same photos go through timm's forward pass at batch 1 with the same decoding.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch
from timm.models.vision_transformer import VisionTransformer

from hashprompt import ContinualClassifier
from hashprompt.backbone.weights import load_backbone
from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.data.reading.images import looks_like_image, read_image
from hashprompt.photos.store.config import ClassifierConfig
from hashprompt.storage.files import as_given, write_atomically

PATIENCE = 600.0
COMMAND = [sys.executable, "-m", "hashprompt"]
CLOSE = 1e-4  # probabilities: batches of other sizes are rounded otherwise


@dataclass(frozen=True)
class Answered:
    """One question and its answer."""

    photo: Path
    seconds: float
    version: int
    answer: dict[str, Any]
    learning: bool


class Server:
    """`hashprompt serve` in a separate process."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        command = [*COMMAND, "serve", str(folder), "--port", "0", "--no-report", *arguments]
        log = (folder.parent / "log.txt").open("wb")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://\S+/", self.process.stdout.readline())
        assert found, "the server did not start"
        self.address = found[0]
        self.client = httpx.Client(base_url=self.address, timeout=PATIENCE)

    def memory(self) -> float:
        """Resident megabytes now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) / 1e3 if found else float("nan")

    def is_learning(self) -> bool:
        return self.client.get("/api/state").json()["job"] is not None

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


def class_photos(folder: Path) -> dict[str, list[Path]]:
    """Photos of every class that has five or more."""
    found = {
        place.name: sorted(p for p in place.iterdir() if looks_like_image(p))
        for place in sorted(folder.iterdir())
        if place.is_dir()
    }
    return {name: photos for name, photos in found.items() if len(photos) >= 5}


class Load:
    """Clients that share a number of questions."""

    def __init__(self, server: Server, photos: list[Path], questions: int, seed: int) -> None:
        self.server, self.photos, self.left, self.seed = server, photos, questions, seed
        self.answered: list[Answered] = []
        self.errors: list[str] = []
        self.learning = False
        self._lock = threading.Lock()

    def client(self, number: int) -> None:
        rng = random.Random(self.seed + number)
        with httpx.Client(base_url=self.server.address, timeout=PATIENCE) as client:
            while self._take():
                photo, learning = rng.choice(self.photos), self.learning
                started = time.perf_counter()
                try:
                    answer = client.post(
                        "/api/ask", files={"photos": (photo.name, photo.read_bytes())}
                    )
                    seconds = time.perf_counter() - started
                    answer.raise_for_status()
                    reply = answer.json()
                    (one,) = reply["answers"]
                    self.answered.append(Answered(photo, seconds, reply["version"], one, learning))
                except Exception as error:
                    self.errors.append(repr(error))

    def _take(self) -> bool:
        with self._lock:
            self.left -= 1
            return self.left >= 0

    def run(self, clients: int, lessons: list[dict[str, list[Path]]]) -> None:
        threads = [threading.Thread(target=self.client, args=(n,)) for n in range(clients)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if not self.server.is_learning() and lessons:
                teach(self.server, lessons.pop(0))
            self.learning = self.server.is_learning()
            time.sleep(0.2)


def teach(server: Server, lesson: dict[str, list[Path]]) -> None:
    files = [
        ("photos", (f"{name}/{photo.name}", photo.read_bytes()))
        for name, photos in lesson.items()
        for photo in photos
    ]
    server.client.post("/api/teach", files=files).raise_for_status()


def different(answers: list[Answered], folder: Path) -> list[str]:
    """Answers that are not those of the command line, by the same version."""
    found = []
    for version in sorted({one.version for one in answers}):
        own = [one for one in answers if one.version == version]
        photos = sorted({one.photo for one in own})
        command = [*COMMAND, "predict", str(folder), *map(str, photos), "--json"]
        reply = subprocess.run(
            [*command, "--version", str(version)], capture_output=True, text=True, check=True
        )
        expected = {answer["name"]: answer for answer in json.loads(reply.stdout)}
        for one in own:
            other = expected[str(one.photo)]
            apart = max(
                abs(one.answer["confidence"] - other["confidence"]),
                abs(one.answer["unknown"] - other["unknown"]),
            )
            if one.answer["label"] != other["label"] or apart > CLOSE:
                found.append(f"{one.photo.name}, version {version}: {one.answer}, not {other}")
    return found


def latency(seconds: list[float]) -> dict[str, float]:
    """Milliseconds."""
    if len(seconds) < 2:
        return {"answers": len(seconds)}
    cuts = statistics.quantiles(seconds, n=100)
    shares = {f"p{n}_ms": round(1000 * cuts[n - 1], 1) for n in (50, 95, 99)}
    return {"answers": len(seconds), **shares, "most_ms": round(1000 * max(seconds), 1)}


def plain_forward(name: str, size: int, photos: list[Path]) -> list[float]:
    """Seconds for each photo: decoding, and timm's own pass of the ViT at batch 1."""
    config = ClassifierConfig.new(load_backbone(name, size), {}, 0)
    views = config.views
    sizes = {**config.backbone.model.vit.sizes, "img_size": size}
    vit = VisionTransformer(**sizes, num_classes=0).eval()
    times = []
    with torch.no_grad():
        for photo in photos:
            started = time.perf_counter()
            image = read_image(photo, config.short_side)
            vit.forward_features(views.clean(PhotoBatch([image])))
            times.append(time.perf_counter() - started)
    return times


def measure(args: argparse.Namespace, place: Path) -> dict[str, Any]:
    classes = class_photos(args.photos)
    names, folder = list(classes), place / "zoo"
    known = names[: max(2, len(names) // 3)]
    first = [(photo, name) for name in known for photo in classes[name]]
    zoo = ContinualClassifier(folder, backbone=args.backbone)
    images, labels = [photo for photo, _ in first], [name for _, name in first]
    zoo.learn(images, labels=labels, effort=args.effort, report=False, quiet=True)
    loaded = zoo.predictor().config.backbone
    backbone, size = loaded.name, loaded.preprocessing.image_size
    others = names[len(known) :]
    step = max(1, len(others) // args.lessons)
    lessons = [
        {n: classes[n] for n in others[at : at + step]} for at in range(0, len(others), step)
    ]
    every = [photo for photos in classes.values() for photo in photos]
    rng = random.Random(0)
    photos = rng.sample(every, min(len(every), args.different))
    server = Server(folder, ["--effort", args.effort])
    try:
        load = Load(server, photos, args.questions, 0)
        warm = Load(server, photos, 2 * args.clients, 1)
        warm.run(args.clients, [])
        before, started = server.memory(), time.perf_counter()
        load.run(args.clients, lessons)
        seconds, after = time.perf_counter() - started, server.memory()
        while server.is_learning():
            time.sleep(0.5)
        single = Load(server, photos, args.single, 2)
        single.run(1, [])
    finally:
        server.stop()
    plain = plain_forward(backbone, size, [one.photo for one in single.answered])
    wrong = different([*load.answered, *single.answered], folder)
    one, bare = statistics.median([a.seconds for a in single.answered]), statistics.median(plain)
    return {
        "backbone": Path(backbone).name,
        "image_size": size,
        "clients": args.clients,
        "questions": args.questions,
        "errors": len(load.errors) + len(warm.errors) + len(single.errors),
        "different_answers": len(wrong),
        "versions": sorted({a.version for a in load.answered}),
        "seconds": round(seconds, 1),
        "while_learning": latency([a.seconds for a in load.answered if a.learning]),
        "while_not_learning": latency([a.seconds for a in load.answered if not a.learning]),
        "all": latency([a.seconds for a in load.answered]),
        "memory_mb": {"before": round(before, 1), "after": round(after, 1)},
        "one_photo": {
            "served_p50_ms": round(1000 * one, 2),
            "timm_and_decoding_p50_ms": round(1000 * bare, 2),
            "ratio": round(one / bare, 3),
            "photos": len(plain),
        },
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "examples": [*load.errors[:3], *wrong[:3]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--backbone")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--single", type=int, default=100, help="requests of a single client")
    parser.add_argument("--different", type=int, default=200, help="photos to choose from")
    parser.add_argument("--lessons", type=int, default=4)
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--out", type=Path, default=Path("docs/results/serving.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = measure(args, Path(place))
    text = json.dumps(found, indent=1)
    write_atomically(as_given(args.out), (text + "\n").encode())
    print(text)


if __name__ == "__main__":
    main()
