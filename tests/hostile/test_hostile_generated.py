"""Generated hostile input: no traceback, no hang, nothing touched beside it, memory in bounds."""

import io
import json
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import stripes
from PIL import Image
from running import Cli
from spoiling import (
    JSON,
    NAMES,
    NO_JSON,
    TEXTS,
    seal_run,
    seal_version,
    spoiled,
    spoiled_bytes,
    spoiled_tensors,
    write_sealed,
)
from strange_names import assert_harmless

from hashprompt import UserError
from hashprompt.backbone.names import nano_file
from hashprompt.backbone.weights import load_backbone
from hashprompt.runs import benchmark
from hashprompt.serve.http.zips import BROKEN, ZipError, zip_files

SECONDS = 3600  # every case has a deadline
DEADLINE = 60  # seconds; a machine may be busy
MAX_MEGABYTES = 1000  # that a case may add to the peak


class Things(NamedTuple):
    """Sound folders and files, to be copied before they are spoiled."""

    run: Path
    zoo: Path
    photos: Path
    treasure: Path
    stream: Path

    @property
    def photo(self) -> Path:
        return self.photos / "ash" / "0-0.png"


Command = tuple[object, ...]  # of hashprompt
Case = Callable[[st.DrawFn, Path, Things], Command]


@pytest.fixture
def things(
    undisturbed: benchmark.Result, taught: Path, photos: Path, treasure: Path, tiny_npz: Path
) -> Things:
    return Things(undisturbed.folder, taught, photos, treasure, tiny_npz)


# Folders. ------------------------------------------------------------------------------------


def run_json(draw: st.DrawFn, place: Path, things: Things) -> Command:
    run = copy_of_run(draw, place, things)
    spoil_json(draw, draw(st.sampled_from(sorted(run.rglob("*.json")))))
    return about_run(draw, run)


def run_tensors(draw: st.DrawFn, place: Path, things: Things) -> Command:
    run = copy_of_run(draw, place, things)
    path = sorted((run / "checkpoints").glob("tensors-*"))[-1]
    path.write_bytes(draw(spoiled_tensors(path.read_bytes())))
    seal_run(run)
    return draw(st.sampled_from(("evaluate", "resume"))), run


def run_place(draw: st.DrawFn, place: Path, things: Things) -> Command:
    run = copy_of_run(draw, place, things)
    names = (*run.rglob("*"), run / "figures", run / "report.html", run / ".lock")
    put_other(draw, draw(st.sampled_from(sorted(names))), things.treasure)
    return about_run(draw, run)


def copy_of_run(draw: st.DrawFn, place: Path, things: Things) -> Path:
    run = Path(shutil.copytree(things.run, place / "run"))
    if draw(st.booleans()):
        (run / "result.json").unlink()
    return run


def about_run(draw: st.DrawFn, run: Path) -> Command:
    commands = (("resume",), ("evaluate",), ("report",), ("compare",))
    table = ("compare", "--markdown", run.parent / "table.md")
    return *draw(st.sampled_from((*commands, table))), run


def spoil_json(draw: st.DrawFn, path: Path) -> None:
    value = json.loads(path.read_bytes())
    content = draw(spoiled(value) | NO_JSON.map(str.encode))
    path.write_bytes(content) if isinstance(content, bytes) else write_sealed(path, content)


def put_other(draw: st.DrawFn, path: Path, treasure: Path) -> None:
    """Put a link, a pipe or a folder where a file or folder was."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    links = (treasure, treasure / "version.json", Path("/dev/zero"), path)
    other = draw(st.sampled_from((os.mkfifo, os.mkdir, *links)))
    path.symlink_to(other) if isinstance(other, Path) else other(path)


def zoo_json(draw: st.DrawFn, place: Path, things: Things) -> Command:
    zoo = Path(shutil.copytree(things.zoo, place / "zoo"))
    path = draw(st.sampled_from(sorted(zoo.rglob("*.json"))))
    spoil_json(draw, path)
    if path.name == "photos.json":
        seal_version(path.parent)
    return about_zoo(draw, zoo, things)


def zoo_tensors(draw: st.DrawFn, place: Path, things: Things) -> Command:
    zoo = Path(shutil.copytree(things.zoo, place / "zoo"))
    path = zoo / "versions" / "0002" / "tensors.safetensors"
    path.write_bytes(draw(spoiled_tensors(path.read_bytes())))
    seal_version(path.parent)
    return "predict", zoo, things.photo


def zoo_names(draw: st.DrawFn, place: Path, things: Things) -> Command:
    """Names of classes and sources that were chosen to be printed."""
    zoo = Path(shutil.copytree(things.zoo, place / "zoo"))
    path = zoo / "versions" / "0002" / "version.json"
    text = path.read_text()
    for old in ("ash", "birch", "cedar", "date", "summer"):
        text = text.replace(f'"{old}"', json.dumps(draw(NAMES)))
    path.write_text(text)
    seal_version(path.parent)
    return about_zoo(draw, zoo, things)


def zoo_place(draw: st.DrawFn, place: Path, things: Things) -> Command:
    zoo = Path(shutil.copytree(things.zoo, place / "zoo"))
    names = (*zoo.rglob("*"), zoo / "learning", zoo / ".lock", zoo / ".holder.json")
    put_other(draw, draw(st.sampled_from(sorted(names))), things.treasure)
    return about_zoo(draw, zoo, things)


def about_zoo(draw: st.DrawFn, zoo: Path, things: Things) -> Command:
    commands: tuple[Command, ...] = (
        *(("history", zoo), ("history", zoo, "--json"), ("diff", zoo, 1, 2), ("undo", zoo)),
        *(("predict", zoo, things.photo), ("predict", zoo, things.photo, "--json")),
        *(("predict", zoo, things.photo, "--csv", zoo.parent / "out.csv"),),
        *(("export", zoo, zoo.parent / "exported"), ("learn", zoo, "--resume", "--quiet")),
    )
    return draw(st.sampled_from(commands))


# Photos and other data. ----------------------------------------------------------------------


def images(draw: st.DrawFn, place: Path, things: Things) -> Command:
    folder = place / "photos" / "class"
    folder.mkdir(parents=True)
    for number, kind in enumerate(("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM")):
        encoded = io.BytesIO()
        mode = draw(st.sampled_from(("RGB", "L", "1")))
        picture = Image.fromarray(stripes(0, 1, np.random.default_rng(0))[0]).convert(mode)
        picture.save(encoded, kind)
        suffix = draw(st.sampled_from(("jpg", "png", "gif", "tif", "webp", "bmp", "ppm")))
        content = draw(spoiled_bytes(encoded.getvalue()))
        (folder / f"{number}.{suffix}").write_bytes(content)
    put_other(draw, folder / "8.jpg", things.treasure)
    commands: tuple[Command, ...] = (("predict", things.zoo, folder), ("data", "check", place))
    return draw(st.sampled_from(commands))


def file_names(draw: st.DrawFn, place: Path, things: Things) -> Command:
    for label in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        folder = place / f"c{label.replace('/', '_')}"
        folder.mkdir()
        for number in range(3):
            odd = draw(st.sampled_from(("\udcff", "\x1b[2J", "\u202e", "a\nb", ":smile:")))
            shutil.copy(things.photo, folder / f"{number}{odd}.png")
    commands = (("data", "check"), ("predict", things.zoo), ("predict", "--json", things.zoo))
    return *draw(st.sampled_from(commands)), place


def lists(draw: st.DrawFn, place: Path, things: Things) -> Command:
    columns = st.sampled_from(("path", "label", "split", "task", "domain", "x", ""))
    header = draw(st.lists(columns, max_size=5))
    cell = TEXTS.map(lambda text: text.replace("\n", " ")) | st.just(str(things.photo))
    rows = draw(st.lists(st.tuples(*(cell for _ in header)), max_size=5))
    text = "\n".join(",".join(row) for row in (header, *rows)).encode(errors="surrogatepass")
    (place / "list.csv").write_bytes(draw(st.just(text) | spoiled_bytes(text)))
    return "data", "check", place / "list.csv"


def settings_of_runs(draw: st.DrawFn, place: Path, things: Things) -> Command:
    names = ("epochs", "lr", "experts", "top_k", "prompt_length", "image_size", "tasks", "seed")
    options = draw(st.dictionaries(st.sampled_from(names) | TEXTS, JSON, min_size=1, max_size=3))
    text = json.dumps(options)  # JSON is YAML
    (place / "config.yaml").write_bytes(draw(st.just(text.encode()) | spoiled_bytes(text.encode())))
    name, value = next(iter(options.items()))
    setting = f"{name}={json.dumps(value)}".replace("\0", "")[:5000]
    flags = draw(st.sampled_from((("--config", place / "config.yaml"), ("--set", setting))))
    return "run", "--stream", f"npz:{place / 'none.npz'}", "--out", place / "out", "-q", *flags


def arrays(draw: st.DrawFn, place: Path, things: Things) -> Command:
    (place / "data.npz").write_bytes(draw(spoiled_bytes(things.stream.read_bytes())))
    return "data", "check", f"npz:{place / 'data.npz'}"


def weights(draw: st.DrawFn, place: Path, things: Things) -> Command:
    content = nano_file().read_bytes()
    path = place / f"w.{draw(st.sampled_from(('safetensors', 'pth', 'npz', 'pt')))}"
    path.write_bytes(draw(spoiled_tensors(content) | spoiled_bytes(content)))
    architecture = draw(st.sampled_from(("", "vit_tiny_patch16_224@", "resnet18@")))
    with suppress(UserError):
        load_backbone(f"{architecture}{path}", draw(st.sampled_from((None, 32, 32_000))))
    return ("--version",)


def zips(draw: st.DrawFn, place: Path, things: Things) -> Command:
    path = Path(shutil.make_archive(str(place / "archive"), "zip", things.photos))
    path.write_bytes(draw(spoiled_bytes(path.read_bytes())))
    with suppress(ZipError, *BROKEN), path.open("rb") as file:
        for _, blocks in zip_files(file, max_members=1000, max_bytes=10**8):
            assert sum(map(len, blocks)) < 10**8
    return ("--version",)


# All of them. --------------------------------------------------------------------------------

KINDS: tuple[Case, ...] = (
    *(run_json, run_tensors, run_place, zoo_json, zoo_tensors, zoo_names, zoo_place),
    *(images, file_names, lists, settings_of_runs, arrays, weights, zips),
)
SHORT, LONG = settings(max_examples=3), settings(max_examples=700, derandomize=False)


def too_slow(number: int, frame: Any) -> None:
    """A configuration may ask for a million epochs: that is work, with a bar, and no hang."""
    if any("engine/trainer" in call.filename for call in traceback.extract_stack(frame)):
        raise SystemExit(1)
    raise AssertionError("it takes too long")


@pytest.mark.parametrize(
    "size", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_generated_input_does_no_harm(
    make: Case, size: settings, things: Things, tmp_path: Path, cli: Cli
) -> None:
    @size
    @given(st.data())
    def meet(data: st.DataObject) -> None:
        before = getrusage(RUSAGE_SELF).ru_maxrss
        with tempfile.TemporaryDirectory(dir=tmp_path) as place:
            command = make(data.draw, Path(place), things)
            signal.alarm(DEADLINE)
            outcome = cli(*command)
            signal.alarm(0)
        assert outcome.code in (0, 1, 2)
        assert_harmless(outcome.out + outcome.err)
        assert getrusage(RUSAGE_SELF).ru_maxrss - before < MAX_MEGABYTES * 1000

    signal.signal(signal.SIGALRM, too_slow)
    meet()
