"""The kinds of hostile input: each makes a case in a folder and lets the product meet it."""

import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mutations import (
    NAMES_OF_STRANGERS,
    VALUES,
    Templates,
    seal_run,
    seal_version,
    spoil_bytes,
    spoil_header,
    spoil_json,
    spoil_place,
    spoil_tensors,
    spoil_text,
)

Run = Callable[..., None]
Case = Callable[[random.Random, Path, Templates, Run], None]


# Folders. ------------------------------------------------------------------------------------


def run_json(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = _run(rng, place, things)
    _spoil_file(rng.choice([*copy.rglob("*.json")]), rng)
    _ask_run(copy, rng, run)


def run_tensors(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = _run(rng, place, things)
    path = sorted((copy / "checkpoints").glob("tensors-*"))[-1]
    path.write_bytes(spoil_tensors(path.read_bytes(), rng))
    seal_run(copy)
    run(rng.choice(["evaluate", "resume"]), copy)


def run_place(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = _run(rng, place, things)
    names = [*copy.rglob("*"), *(copy / name for name in ("figures", "report.html", ".lock"))]
    spoil_place(rng.choice(names), things.treasure, rng)
    _ask_run(copy, rng, run)


def _run(rng: random.Random, place: Path, things: Templates) -> Path:
    return Path(shutil.copytree(rng.choice([things.run, things.unfinished]), place / "run"))


def _spoil_file(path: Path, rng: random.Random) -> None:
    if rng.random() < 0.2:
        spoil_text(path, rng)
    else:
        spoil_json(path, rng, reseal=rng.random() < 0.9)


def _ask_run(folder: Path, rng: random.Random, run: Run) -> None:
    command = rng.choice(["resume", "evaluate", "compare", "compare", "report"])
    markdown = ["--markdown", folder.parent / "table.md"] if command == "compare" else []
    run(command, folder, *markdown)


def zoo_json(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = _zoo(place, things)
    path = rng.choice([*copy.rglob("*.json")])
    _spoil_file(path, rng)
    if path.name == "photos.json":
        seal_version(path.parent)
    _ask_zoo(copy, rng, things, run)


def zoo_tensors(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = _zoo(place, things)
    version = copy / "versions" / "0002"
    path = version / "tensors.safetensors"
    path.write_bytes(spoil_tensors(path.read_bytes(), rng))
    seal_version(version)
    run("predict", copy, things.photos / "ash" / "0-0.png")


def zoo_names(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    """Names of classes and sources that were chosen to be printed."""
    copy = _zoo(place, things)
    path = copy / "versions" / "0002" / "version.json"
    names = rng.sample(NAMES_OF_STRANGERS, 5)
    text = path.read_text()
    for old, new in zip(("ash", "birch", "cedar", "date", "more"), names, strict=True):
        text = text.replace(f'"{old}"', json.dumps(new))
    path.write_text(text)
    seal_version(path.parent)
    _ask_zoo(copy, rng, things, run)


def zoo_place(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = _zoo(place, things)
    names = [*copy.rglob("*"), *(copy / name for name in ("learning", ".lock", ".holder.json"))]
    spoil_place(rng.choice(names), things.treasure, rng)
    _ask_zoo(copy, rng, things, run)


def _zoo(place: Path, things: Templates) -> Path:
    shutil.copytree(things.zoo, place / "zoo")
    return place / "zoo"


def _ask_zoo(folder: Path, rng: random.Random, things: Templates, run: Run) -> None:
    photo = things.photos / "ash" / "0-0.png"
    commands: list[list[Any]] = [
        ["history", folder],
        ["history", folder, "--json"],
        ["diff", folder, 1, 2],
        ["undo", folder],
        ["predict", folder, photo],
        ["predict", folder, photo, "--csv", folder.parent / "out.csv"],
        ["predict", folder, photo, "--json"],
        ["export", folder, folder.parent / "exported"],
        ["learn", folder, "--resume", "--quiet"],
        ["learn", folder, things.photos, "--quiet"],
    ]
    run(*rng.choice(commands))


# Photos. -------------------------------------------------------------------------------------


def images(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    folder = place / "photos" / "class"
    folder.mkdir(parents=True)
    for number in range(5):
        suffix = rng.choice(["jpg", "png", "gif", "tif", "webp", "bmp", "ppm"])
        content = spoil_bytes(rng.choice(things.pictures), rng)
        (folder / f"{number}.{suffix}").write_bytes(content)
    spoil_place(folder / "5.jpg", things.treasure, rng)
    if rng.random() < 0.5:
        run("predict", things.zoo, folder)
    else:
        run("data", "check", place / "photos")


def file_names(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    folder = os.fsencode(place / "photos")
    content = things.pictures[0]
    for label in rng.sample(NAMES_OF_STRANGERS, 3):
        name = label.replace("/", "_").encode("utf-8", "surrogateescape")[:200]
        inside = os.path.join(folder, b"c" + name)
        os.makedirs(inside, exist_ok=True)
        for number in range(3):
            odd = rng.choice([b"\xff\xfe", b"\x1b[2J", "\u202e".encode(), b"a\nb", b":smile:"])
            with open(os.path.join(inside, b"%d%s.png" % (number, odd)), "wb") as file:
                file.write(content)
    command: list[Any] = rng.choice(
        [["data", "check", place / "photos"], ["predict", things.zoo, place / "photos"]]
    )
    run(*command, *(rng.choice([[], ["--json"]]) if command[0] == "predict" else []))


# Files that are data. ------------------------------------------------------------------------


def lists(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    path = place / "list.csv"
    columns = rng.sample(["path", "label", "split", "task", "domain", "x", ""], rng.randint(0, 5))
    cells = [str(rng.choice(VALUES))[: 10**5] for _ in range(30)] + [str(things.photos / "ash")]
    rows = [",".join(rng.choice(cells) for _ in columns) for _ in range(rng.choice([0, 1, 20]))]
    text = "\n".join([",".join(columns), *rows])
    content = text.encode("utf-8", "surrogatepass")
    path.write_bytes(spoil_bytes(content, rng) if rng.random() < 0.3 else content)
    run("data", "check", path)


def yaml(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    path = place / "config.yaml"
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
        f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    names = ["epochs", "lr", "experts", "top_k", "prompt_length", "image_size", "tasks", "seed"]
    values = [*map(repr, VALUES), "1e400", "!!python/object/apply:os.system [x]", "2020-99-99"]
    texts = [
        bomb,
        "[" * 10**4,
        "{a: " * 2000,
        "- " * 5000,
        "? " * 5000,
        "method: {}",
        "\n".join(f"{rng.choice(names)}: {rng.choice(values)}" for _ in range(3)),
        *(f"{rng.choice(names)}: {value}" for value in ("1e9", "2e7", "32000", "-1", "1e-400")),
    ]
    path.write_bytes(rng.choice(texts).encode("utf-8", "surrogatepass"))
    setting = f"{rng.choice(names)}={str(rng.choice(values))[:5000]}".replace("\0", "")
    flags = rng.choice([["--config", path], ["--set", setting]])
    run("run", "--stream", f"npz:{place / 'none.npz'}", "--out", place / "out", "-q", *flags)


def npz(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    path = place / "data.npz"
    shutil.copy(things.run.parent / "tiny.npz", path)
    path.write_bytes(spoil_bytes(path.read_bytes(), rng))
    run("data", "check", f"npz:{path}")


def weights(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    from hashprompt.backbone.weights import load_backbone

    content = things.weights.read_bytes()
    path = place / f"w{rng.choice(['.safetensors', '.safetensors', '.pth', '.npz', '.pt'])}"
    action = rng.randrange(3)
    if action == 0:
        path.write_bytes(spoil_tensors(content, rng))
    elif action == 1:
        path.write_bytes(spoil_header(content, rng))
    else:
        path.write_bytes(spoil_bytes(content, rng))
    name = rng.choice(["", "", "vit_tiny_patch16_224@", "resnet18@", "vit_giant_patch14_224@"])
    load_backbone(f"{name}{path}", rng.choice([None, None, 32, 64, 32000]))


# Zips of clients. ----------------------------------------------------------------------------


def zips(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    from hashprompt.serve.http.zips import BROKEN, ZipError, zip_files

    path = Path(shutil.make_archive(str(place / "archive"), "zip", things.photos))
    path.write_bytes(spoil_bytes(path.read_bytes(), rng))
    with suppress(ZipError, *BROKEN), path.open("rb") as file:
        for _, blocks in zip_files(file, max_members=1000, max_bytes=10**8):
            assert sum(map(len, blocks)) < 10**8


KINDS: dict[str, Case] = {
    kind.__name__: kind
    for kind in (
        *(run_json, run_tensors, run_place, zoo_json, zoo_tensors, zoo_names, zoo_place),
        *(images, file_names, lists, yaml, npz, weights, zips),
    )
}
