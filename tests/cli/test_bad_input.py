"""Whatever is wrong, the user reads what it was and what to do, and nothing is lost."""

import json
import os
import pickle
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from safetensors.torch import save_file

from hashprompt.backbone.names import nano_file
from hashprompt.engine.checkpoint import Checkpoints
from hashprompt.engine.trainer import Trainer
from hashprompt.errors import UserError
from hashprompt.methods.base import StepResult
from hashprompt.methods.hash.method import Hash
from hashprompt.runs import benchmark

Refusal = Callable[..., str]


@pytest.fixture
def refused(cli: Any, tiny_flags: list[str], tmp_path: Path) -> Refusal:
    """`refused("--seed", "x")`: run with these flags; the message. No run directory is left."""

    def call(*flags: object) -> str:
        out = tmp_path / "out"
        outcome = cli("run", "--out", out, *tiny_flags, *flags)
        assert outcome.code == 1
        assert not out.exists()
        assert outcome.said.startswith("Error: ")
        return outcome.said

    return call


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# Names and options. ------------------------------------------------------------------------

NAMES_AND_OPTIONS = {
    "method": (["-m", "hsah"], ["Unknown method `hsah`", "mean `hash`", "hashprompt methods"]),
    "stream": (["-s", "glyhps"], ["Unknown stream `glyhps`", "`glyphs`", "hashprompt streams"]),
    "stream like markup": (["-s", "[/red]"], ["Unknown stream `[/red]`", "npz:FILE"]),
    "backbone": (["-b", "vit_tinny"], ["`vit_tinny`", "`vit_tiny_patch16_224`", "FILE"]),
    "preset": (["-m", "hide", "--preset", "bset"], ["preset of hide `bset`", "mean `best`"]),
    "option": (["--set", "topk=3"], ["Unknown option `topk`", "mean `top_k`"]),
    "option of another method": (["-m", "finetune"], ["Unknown option `tii_epochs`"]),
    "type": (["--set", "top_k=many"], ["top_k='many'", "valid integer"]),
    "range": (["--set", "top_k=0"], ["top_k=0", "greater than or equal to 1"]),
    "choice": (["--set", "augment=cut"], ["augment='cut'", "'crop', 'resized-crop' or 'none'"]),
    "not a number": (["--set", "lr=nan"], ["lr='nan'", "finite number"]),
    "combination": (
        ["--set", "top_k=9", "--set", "experts=3"],
        ["top_k=9", "must not exceed experts=3"],
    ),
    "no value": (["--set", "top_k"], ["`--set top_k`", "expected KEY=VALUE"]),
    "no name": (["--set", "=3"], ["`--set =3`", "expected KEY=VALUE"]),
    "unreadable value": (["--set", "layers=[1"], ["`--set layers=[1`", "cannot be read"]),
    "seed": (["--seed", str(10**30)], [f"seed={10**30}", "less than"]),
    "order seed": (["--set", f"order_seed={10**30}"], [f"order_seed={10**30}", "less than"]),
    "image size": (["--set", "image_size=33"], ["33", "multiple of the patch size 8", "Try 32"]),
    "tasks": (["--set", "tasks=7"], ["7 tasks", "only 6 classes", "tasks=6 or fewer"]),
    "classes": (["--set", "classes=9"], ["classes=9", "6 classes"]),
    "layers": (["--set", "layers=[1,7]"], ["layers=[1, 7]", "blocks 1–6"]),
    "layer zero": (["--set", "layers=[0]"], ["layers=[0]", "blocks 1–6"]),
}


@pytest.mark.parametrize("case", NAMES_AND_OPTIONS)
def test_a_wrong_name_or_option_is_refused_in_words(case: str, refused: Refusal) -> None:
    flags, told = NAMES_AND_OPTIONS[case]
    message = refused(*flags)
    for text in told:
        assert text in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_refused(refused: Refusal) -> None:
    message = refused("--set", "device=cuda")
    assert "Cannot use device=cuda" in message
    assert "device=auto" in message


def test_the_debug_flag_lets_the_exception_through(cli: Any) -> None:
    with pytest.raises(UserError, match="Unknown method `hsah`"):
        cli("--debug", "run", "-m", "hsah")


# Config files. -----------------------------------------------------------------------------

CONFIGS = {
    "broken": (b"layers: [1,", ["as YAML", "line 1"]),
    "not text": (b"\xff\xfe\x00", ["as YAML", "can't decode"]),
    "a list": (b"- method", ["must hold `name: value` lines"]),
    "empty": (b"", ["must hold `name: value` lines"]),
    "unknown option": (b"topk: 3", ["Unknown option `topk`", "`top_k`"]),
    "a number as a name": (b"3: 4", ["Unknown option `3`"]),
    "a number as the method": (b"method: 3", ["method=3", "valid string"]),
    "a list as the preset": (b"preset: [best]", ["preset=['best']", "valid string"]),
    "a word as the seed": (b"seed: one", ["seed='one'", "valid integer"]),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_bad_config_file_is_refused_with_its_fault(
    case: str, refused: Refusal, tmp_path: Path
) -> None:
    content, told = CONFIGS[case]
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    message = refused("--config", path)
    for text in told:
        assert text in message


def test_a_config_file_that_is_not_there_is_refused(refused: Refusal, tmp_path: Path) -> None:
    message = refused("--config", tmp_path / "none.yaml")
    assert "none.yaml" in message
    assert "No such file" in message


# Weights. ----------------------------------------------------------------------------------


VIT = "vit_tiny_patch16_224"
WRITE_WEIGHTS: dict[str, tuple[str, Callable[[Path], Any], list[str]]] = {
    "of another architecture": (
        f"{VIT}@w.safetensors",
        lambda path: shutil.copy(nano_file(), path),
        ["another architecture", "ARCHITECTURE@FILE"],
    ),
    "of an unknown architecture": (
        "vit_none@w.safetensors",
        lambda path: shutil.copy(nano_file(), path),
        ["`vit_none` is not a timm architecture"],
    ),
    "of no known shape": (
        "w.safetensors",
        lambda path: save_file({"a": torch.zeros(2)}, path, metadata={"architecture": "x"}),
        ["Cannot tell the architecture", "ARCHITECTURE@"],
    ),
    "truncated": (
        "w.safetensors",
        lambda path: path.write_bytes(nano_file().read_bytes()[:9999]),
        ["w.safetensors cannot be read as weights", "truncated", "Get it again"],
    ),
    **{
        f"a text file: {name}": (
            name,
            lambda path: path.write_text("dear diary"),
            [f"{name} cannot be read as {kind}"],
        )
        for name, kind in {
            **dict.fromkeys(("notes.safetensors", "notes.pth", "notes.pt"), "weights"),
            "notes.npz": "an .npz file",
        }.items()
    },
    **{
        f"no named tensors: {state}": (
            f"{VIT}@w.pth",
            partial(torch.save, state),
            ["expected a table of named tensors"],
        )
        for state in ({1: torch.zeros(2)}, [torch.zeros(2)], {"a": "b"})
    },
    "not there": ("none.safetensors", lambda path: None, ["No weights file at", "ARCHITECTURE@"]),
    "npz of unknown architecture": (
        "w.npz",
        lambda path: np.savez(path, cls=np.zeros(3)),
        ["does not name its architecture", "ARCHITECTURE@"],
    ),
    **{
        f"npz without weights: {name}": (
            f"{VIT}@w.npz",
            lambda path, name=name: np.savez(path, **{name: np.zeros((1, 1, 192))}),
            [f"does not hold weights of `{VIT}`"],
        )
        for name in ("x", "cls")
    },
}


@pytest.mark.parametrize("case", WRITE_WEIGHTS)
def test_bad_weights_are_refused_with_their_fault(
    case: str, refused: Refusal, tmp_path: Path
) -> None:
    given, write, told = WRITE_WEIGHTS[case]
    architecture, mark, name = given.rpartition("@")
    write(tmp_path / name)
    message = refused("-b", f"{architecture}{mark}{tmp_path / name}")
    for text in told:
        assert text in message


class Bomb:
    """Unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("dump", [torch.save, lambda x, path: path.write_bytes(pickle.dumps(x, 2))])
def test_code_inside_a_weights_file_never_runs(
    dump: Callable[[Any, Path], None], refused: Refusal, tmp_path: Path
) -> None:
    dump({"w": Bomb(tmp_path / "boom")}, tmp_path / "w.pth")
    message = refused("-b", f"{VIT}@{tmp_path / 'w.pth'}")
    assert not (tmp_path / "boom").exists()
    assert "pickled code, which is never loaded" in message
    assert "safetensors" in message


# Streams. ----------------------------------------------------------------------------------

CHANGES: dict[str, tuple[Callable[[dict[str, np.ndarray]], Any], list[str]]] = {
    "no images": (
        lambda a: a.update({k: v[:0] for k, v in a.items()}),
        ["empty", "0 training and 0 test images"],
    ),
    "no test images": (
        lambda a: a.update(x_test=a["x_test"][:0], y_test=a["y_test"][:0]),
        ["empty", "48 training and 0 test images"],
    ),
    "missing arrays": (
        lambda a: [a.pop(k) for k in ("x_test", "y_train")],
        ["lacks y_train, x_test", "holds x_train, y_test"],
    ),
    "floats": (
        lambda a: a.update(x_train=a["x_train"] / 255),
        ["x_train", "float64 (48, 32, 32, 3)", "expected uint8 (N, H, W, 3)"],
    ),
    "channels first": (
        lambda a: a.update(x_test=a["x_test"].transpose(0, 3, 1, 2)),
        ["x_test", "uint8 (24, 3, 32, 32)", "expected uint8 (N, H, W, 3)"],
    ),
    "images without pixels": (
        lambda a: a.update(x_train=a["x_train"][:, :0]),
        ["x_train", "(48, 0, 32, 3)"],
    ),
    "labels too few": (
        lambda a: a.update(y_train=a["y_train"][1:]),
        ["y_train", "(47,)", "each of the 48 images"],
    ),
    "labels one-hot": (
        lambda a: a.update(y_train=np.eye(6, dtype=int)[a["y_train"]]),
        ["y_train", "(48, 6)", "one whole number"],
    ),
    "labels as floats": (
        lambda a: a.update(y_test=a["y_test"].astype(float)),
        ["y_test", "float64", "one whole number"],
    ),
    "negative labels": (
        lambda a: a.update(y_test=a["y_test"].astype(int) - 1),
        ["y_test", "from -1 to 4", "Number the classes from 0"],
    ),
    "labels like ids": (
        lambda a: a.update(y_train=a["y_train"].astype(np.uint64) + 2**63),
        ["y_train", "Number the classes from 0"],
    ),
    "a class in the test alone": (
        lambda a: a.update(y_test=np.where(a["y_test"] == 5, 9, a["y_test"])),
        ["not in the training images: 9", "Add training images"],
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_bad_stream_file_is_refused_with_its_fault(
    case: str, refused: Refusal, tiny_npz: Path, tmp_path: Path
) -> None:
    change, told = CHANGES[case]
    arrays = dict(np.load(tiny_npz))
    change(arrays)
    np.savez(tmp_path / "s.npz", **arrays)
    message = refused("-s", f"npz:{tmp_path / 's.npz'}")
    for text in told:
        assert text in message


def test_a_stream_of_pickles_is_refused(refused: Refusal, tmp_path: Path) -> None:
    bombs = np.array([Bomb(tmp_path / "boom")], dtype=object)
    np.savez(tmp_path / "s.npz", x_train=bombs)
    message = refused("-s", f"npz:{tmp_path / 's.npz'}")
    assert "cannot be read as an .npz file" in message
    assert not (tmp_path / "boom").exists()


def test_a_file_that_is_no_stream_is_refused(refused: Refusal, tmp_path: Path) -> None:
    (tmp_path / "s.npz").write_text("dear diary")
    assert "cannot be read as an .npz file" in refused("-s", tmp_path / "s.npz")
    assert "No such file" in refused("-s", f"npz:{tmp_path / 'none.npz'}")


# Small is not bad. -------------------------------------------------------------------------


# The default method, and one that is read off its Gaussians and needs no epochs to be right.
METHODS: dict[str, dict[str, Any]] = {
    "hash": {},
    "averaged-prompt": {"tii_epochs": None, "align_epochs": None},
}


@pytest.mark.parametrize("method", METHODS)
def test_a_class_of_one_training_image_can_be_learned(
    method: str, tiny_run: Any, lonely_npz: Path, tmp_path: Path
) -> None:
    changes = {"stream": f"npz:{lonely_npz}", **METHODS[method]}
    result = tiny_run(tmp_path / "out", method=method, **changes)
    assert result.data["protocol"]["images"] == [[2, 8]] * 3
    assert result.metrics["FAA"] >= (0 if method == "hash" else 50)  # guessing gives 17


@pytest.mark.parametrize("method", METHODS)
def test_a_task_of_one_class_can_be_learned(method: str, tiny_run: Any, tmp_path: Path) -> None:
    changes = {"tasks": 4, "classes": 4, "epochs": 1, **METHODS[method]}
    result = tiny_run(tmp_path / "out", method=method, **changes)
    assert result.data["protocol"]["tasks"] == [[0], [1], [2], [3]]
    assert result.accuracy[0][0] == 100  # one class alone cannot be missed
    assert result.metrics["FAA"] >= (0 if method == "hash" else 50)  # guessing gives 25


# The run directory. ------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["run", "resume"])
def test_a_directory_that_holds_a_run_is_not_touched(
    method: str, cli: Any, tiny_flags: list[str], undisturbed: benchmark.Result, tmp_path: Path
) -> None:
    before = listing(undisturbed.folder)
    if method == "run":
        outcome = cli("run", *tiny_flags, "--out", undisturbed.folder)
        assert outcome.code == 1
        assert "contains a run" in outcome.said
        assert "`hashprompt resume`" in outcome.said
        assert "--overwrite" in outcome.said
    else:  # of a run that is finished
        assert benchmark.resume(undisturbed.folder).data == undisturbed.data
    assert listing(undisturbed.folder) == before


def test_overwrite_replaces_a_run_and_keeps_what_is_not_ours(tiny_run: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    stored = {"format": 0, "method": "hash", "protocol": {}}
    (out / "config.json").write_text(json.dumps(stored))
    (out / "notes.txt").touch()
    (out / "report.html").touch()
    result = tiny_run(out, method="finetune", overwrite=True, tii_epochs=None, align_epochs=None)
    assert result.metrics["FAA"] is not None
    left = {p.name for p in out.iterdir() if p.name != ".lock"}
    assert left == {"config.json", "result.json", "checkpoints", "notes.txt"}


FOREIGN = {
    "photos": {"cat.jpg": "x"},
    "a model with a config.json": {"config.json": '{"model_type": "vit"}', "model.bin": "x"},
    "a config.json that is a list": {"config.json": "[]"},
    "a config.json that is no JSON": {"config.json": "method = hash"},
}


@pytest.mark.parametrize("case", FOREIGN)
@pytest.mark.parametrize("flags", [[], ["--overwrite"]])
def test_a_foreign_folder_is_never_touched(
    case: str, flags: list[str], cli: Any, tiny_flags: list[str], tmp_path: Path
) -> None:
    for name, content in FOREIGN[case].items():
        (tmp_path / name).write_text(content)
    before = listing(tmp_path)
    outcome = cli("run", *tiny_flags, "--out", tmp_path, *flags)
    assert outcome.code == 1
    assert "is not a run directory. Choose another --out" in outcome.said
    assert listing(tmp_path) == before


@pytest.mark.parametrize("below", ["", "deep/down"])
def test_an_impossible_directory_is_refused(
    below: str, cli: Any, tiny_flags: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("here")
    outcome = cli("run", *tiny_flags, "--out", tmp_path / "file" / below, "--overwrite")
    assert outcome.code == 1
    assert f"Cannot create {tmp_path / 'file' / below}" in outcome.said
    assert "Choose another --out" in outcome.said
    assert (tmp_path / "file").read_text() == "here"


@pytest.mark.parametrize("content", [None, "{", "[]", '{"method": "hash"}'])
def test_only_a_run_directory_can_be_resumed(content: str | None, cli: Any, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    outcome = cli("resume", tmp_path)
    assert outcome.code == 1
    assert f"{tmp_path} is not a run directory" in outcome.said


def test_two_processes_do_not_work_on_one_run(
    cli: Any, tiny_flags: list[str], undisturbed: benchmark.Result, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed.folder, run)
    (run / "result.json").unlink()
    with FileLock(run / ".lock"):
        before = listing(run)
        for command in (["resume", run], ["run", *tiny_flags, "--out", run, "--overwrite"]):
            outcome = cli(*command)
            assert outcome.code == 1
            assert f"Another process is working on {run}" in outcome.said
            assert listing(run) == before
    assert cli("resume", run).code == 0  # it has gone


# Interruptions. ----------------------------------------------------------------------------


@pytest.fixture
def at_step(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int, Callable[[dict[str, Any]], Any]], None]:
    """`at_step(n, act)`: once, at the n-th training step of the prompts, act on its losses."""

    def arrange(number: int, act: Callable[[dict[str, Any]], Any]) -> None:
        real, calls = Hash.step, 0

        def step(self: Hash, *args: Any) -> StepResult:
            nonlocal calls
            calls += 1
            result = real(self, *args)
            if calls == number:
                act(result.losses)
            return result

        monkeypatch.setattr(Hash, "step", step)

    return arrange


def test_a_loss_that_is_not_finite_stops_at_a_named_step(
    cli: Any, tiny_flags: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    outcome = cli("run", *tiny_flags, "--set", "lr=1e30", "--out", out)
    assert outcome.code == 1
    assert "The loss is not finite (ce=nan" in outcome.said
    assert "task 1, phase wtp, epoch 1, step 2" in outcome.said
    assert "smaller lr" in outcome.said
    tensors, state = Checkpoints(out / "checkpoints").load()
    assert (state["position"]["epoch"], state["position"]["step"]) == (0, 1)
    assert tensors["method/history.pending"].sum() == 8 * 2  # one step: 8 images, 2 experts


def test_training_that_diverges_in_its_last_step_is_noticed(tiny_run: Any, tmp_path: Path) -> None:
    one_step = {"lr": 1e30, "epochs": 1, "batch_size": 16, **METHODS["averaged-prompt"]}
    with pytest.raises(UserError, match=r"Non-finite features.* smaller lr"):
        tiny_run(tmp_path / "out", method="averaged-prompt", **one_step)


def test_a_passing_fault_of_the_loss_leaves_no_trace(
    at_step: Any, tiny_run: Any, assert_same: Callable[..., None], tmp_path: Path
) -> None:
    at_step(6, lambda losses: losses.update(ce=losses["ce"] * torch.nan))
    with pytest.raises(UserError, match="task 2, phase wtp, epoch 1, step 2"):
        tiny_run(tmp_path)
    # The pass of the spoilt step did happen, and is counted.
    assert_same(benchmark.resume(tmp_path, quiet=True), but=("passes",))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_saves_and_says_how_to_go_on(
    number: signal.Signals,
    at_step: Any,
    cli: Any,
    tiny_flags: list[str],
    assert_same: Callable[..., None],
    tmp_path: Path,
) -> None:
    out = tmp_path / ("a-long-name" * 9) / "out"  # longer than a line: it must not be broken
    handler = signal.getsignal(number)
    at_step(5, lambda _: signal.raise_signal(number))
    outcome = cli("run", *tiny_flags, "--out", out)
    assert outcome.code == 1
    assert "the state is saved" in outcome.err
    assert f"hashprompt resume {out}\n" in outcome.err
    assert signal.getsignal(number) is handler
    _, state = Checkpoints(out / "checkpoints").load()
    assert state["position"] == {"task": 1, "phase": 3, "epoch": 0, "step": 1}
    assert_same(benchmark.resume(out, quiet=True))


def test_a_second_ctrl_c_stops_at_once(
    at_step: Any,
    cli: Any,
    tiny_flags: list[str],
    assert_same: Callable[..., None],
    tmp_path: Path,
) -> None:
    def twice(_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    at_step(7, twice)
    outcome = cli("run", *tiny_flags, "--out", tmp_path / "out")
    assert outcome.code == 1
    assert "Stopped at once" in outcome.said
    assert f"hashprompt resume {tmp_path / 'out'}" in outcome.said
    _, state = Checkpoints(tmp_path / "out" / "checkpoints").load()
    assert (state["position"]["epoch"], state["position"]["step"]) == (0, 0)  # of the phase before
    assert_same(benchmark.resume(tmp_path / "out", quiet=True))


def test_a_run_is_not_resumed_on_other_data(
    cli: Any, tiny_npz: Path, tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = tmp_path / "data.npz", tmp_path / "out"
    data.write_bytes(tiny_npz.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "fit", lambda self: (_ for _ in ()).throw(UserError("cut off")))
        with pytest.raises(UserError, match="cut off"):
            tiny_run(out, stream=f"npz:{data}")
    arrays = dict(np.load(data))
    arrays["x_train"][0, 0, 0, 0] ^= 1
    np.savez(data, **arrays)
    outcome = cli("resume", out)
    assert outcome.code == 1
    assert f"Cannot resume {out}: fingerprint was" in outcome.said
    assert "Restore the original data or weights" in outcome.said
