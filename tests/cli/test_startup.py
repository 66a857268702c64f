"""Commands that compute nothing start without what computing needs. Measured in modules, not time:
`benchmarks/startup.py` measures time.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

HEAVY = ("torch", "timm", "sklearn", "scipy", "matplotlib", "lightning_fabric", "torchvision")
# Runs commands one after the other in one process, then tells what has been imported.
SCRIPT = """
import contextlib, io, json, os, sys
commands, loaded = json.loads(sys.argv[1]), {}
from hashprompt.cli.app import main
for arguments in commands:
    sys.argv = ["hashprompt", *arguments]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    heavy = [name for name in HEAVY if name in sys.modules]
    loaded[" ".join(arguments)] = [code, heavy]
print(json.dumps(loaded))
""".replace("HEAVY", repr(HEAVY))
COMPUTES = ("learn", "predict", "export", "resume", "evaluate", "report")
COMMANDS = ("run", *COMPUTES, "history", "undo", "diff", "compare", "methods", "streams")
EDITS = ("rename", "merge", "forget", "sort", "serve")
HELP = [[name, "--help"] for name in (*COMMANDS, *EDITS, "backbones", "data")]
HELP += [["paper", name, "--help"] for name in ("list", "run", "report")]
HELP += [["data", name, "--help"] for name in ("list", "fetch", "check")]
LISTS = [["--version"], ["--help"], ["methods"], ["methods", "hash"], ["methods", "hash", "--all"]]
LISTS += [["streams"], ["backbones"], ["data", "list"], ["paper", "list"]]
LISTS += [["paper", "run", "T1", "--scale", "full", "--out", "new", "--plan"]]
REFUSED = [
    ["run", "-m", "hsah"],
    ["run", "-s", "glyhps"],
    ["run", "-b", "vit_tinny"],
    ["run", "-b", "missing.safetensors"],
    ["run", "--preset", "bset"],
    ["run", "--set", "topk=3"],
    ["run", "--log", "cvs"],
    ["run", "--set", "top_k=0"],
    ["run", "--config", "bad.yaml"],
    ["methods", "hsah"],
    ["compare", "nowhere"],
    ["history", "nowhere"],
    ["undo", "nowhere"],
    ["diff", "nowhere", "1", "2"],
    ["predict", "nowhere", "x.jpg"],
    ["rename", "nowhere", "a", "b"],
    ["merge", "nowhere", "a", "b", "--into", "c"],
    ["forget", "nowhere", "a"],
    ["sort", "nowhere", "inbox", "--into", "x"],
    ["resume", "nowhere"],
    ["evaluate", "nowhere", "--set", "eval_batch_size=1"],
    ["report", "nowhere"],
    ["learn", "new", "photos", "--set", "topk=3"],
    ["serve", "new", "--set", "topk=3"],
    ["serve", "new", "-b", "missing.safetensors"],
    ["serve", "nowhere", "--read-only"],
    ["learn", "new", "photos", "--set", "method=l2p"],
    ["methods", "check"],
    ["paper", "run", "T55", "--scale", "nano", "--out", "new"],
    ["paper", "run", "T5", "--scale", "nano", "--set", "epoch=1", "--out", "new"],
    ["paper", "report", "--ledger", "nowhere", "--out", "new"],
    ["data", "fetch", "cifra"],
    ["data", "check", "glyhps"],
]


def python(*arguments: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout


def after(commands: list[list[str]], folder: Path) -> dict[str, tuple[int, list[str]]]:
    """Command -> its exit code, and the heavy modules that are there after it."""
    loaded: dict[str, tuple[int, list[str]]] = json.loads(
        python("-c", SCRIPT, json.dumps(commands), cwd=folder)
    )
    return loaded


def test_lists_and_help_import_nothing_heavy(tmp_path: Path) -> None:
    assert after([*LISTS, *HELP], tmp_path) == {
        " ".join(command): [0, []] for command in [*LISTS, *HELP]
    }


def test_a_wrong_name_or_option_is_refused_without_importing_anything_heavy(
    tmp_path: Path,
) -> None:
    (tmp_path / "bad.yaml").write_text("[1, 2")
    assert after(REFUSED, tmp_path) == {" ".join(command): [1, []] for command in REFUSED}


def test_what_is_there_is_told_without_importing_anything_heavy(
    tmp_path: Path, tiny_run: Any
) -> None:
    """The past of a classifier and the results of runs are read, not computed."""
    from hashprompt import ContinualClassifier

    noise = np.random.default_rng(0).integers(0, 255, (12, 32, 32, 3), dtype=np.uint8)
    zoo = ContinualClassifier(tmp_path / "zoo", backbone="nano", epochs=1)
    for names in ("ab", "cd"):
        labels = [names[0]] * 6 + [names[1]] * 6
        zoo.learn(noise, labels=labels, report=False, quiet=True, effort="quick")
        noise = 255 - noise
    for seed in (0, 1):
        tiny_run(tmp_path / f"run-{seed}", seed=seed, epochs=1)
    commands = [
        ["history", "zoo"],
        ["history", "zoo", "--json"],
        ["diff", "zoo", "1", "2"],
        ["undo", "zoo"],
        ["compare", "run-0", "run-1"],
        ["compare", "run-0", "run-1", "--markdown", "table.md"],
    ]
    assert after(commands, tmp_path) == {" ".join(command): [0, []] for command in commands}


def test_completion_imports_nothing_heavy(tmp_path: Path) -> None:
    typed = {"_HASHPROMPT_COMPLETE": "complete_bash", "COMP_WORDS": "hashprompt met"}
    code = (
        "import sys; from hashprompt.cli.app import main; sys.argv = ['hashprompt']\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    said = python("-c", code, cwd=tmp_path, **typed, COMP_CWORD="1")
    assert said.splitlines() == ["methods", "HEAVY []"]


def test_importing_the_package_imports_nothing_heavy_and_shows_everything(tmp_path: Path) -> None:
    code = (
        "import sys, hashprompt; print(dir(hashprompt)); "
        f"print([n for n in ('pydantic', 'rich', 'yaml', *{HEAVY!r}) if n in sys.modules])"
    )
    shown, loaded = python("-c", code, cwd=tmp_path).splitlines()
    for name in ("ContinualClassifier", "Answer", "LearnResult", "Result", "run", "resume"):
        assert repr(name) in shown
    assert loaded == "[]"


def test_what_does_not_exist_is_an_attribute_error() -> None:
    import hashprompt
    from hashprompt import backbone, methods

    for module in (hashprompt, backbone, methods):
        with pytest.raises(AttributeError, match="nonsense"):
            module.nonsense  # noqa: B018
        for name in module.__all__:
            assert getattr(module, name) is not None


HEAVIER = (*HEAVY, "torch._dynamo", "sympy", "wandb", "onnxruntime")


@pytest.mark.parametrize(
    ("modules", "needed"),
    [
        (
            "hashprompt.runs.benchmark, hashprompt.methods.hash.method, hashprompt.ui.progress",
            ["torch"],
        ),
        ("hashprompt.photos.onnx.model", []),
    ],
    ids=["run", "predict with ONNX"],
)
def test_a_run_and_an_answer_import_only_what_they_use(
    modules: str, needed: list[str], tmp_path: Path
) -> None:
    code = f"import sys, {modules}; print([n for n in {HEAVY!r} if n in sys.modules])"
    assert python("-c", code, cwd=tmp_path).strip() == repr(needed)


def test_an_answer_of_a_plain_vit_needs_torch_alone(tmp_path: Path) -> None:
    """Not even its compiler, which what looks harmless may import: `meta` tensors, modes."""
    from hashprompt import ContinualClassifier

    noise = np.random.default_rng(0).integers(0, 255, (12, 32, 32, 3), dtype=np.uint8)
    zoo = ContinualClassifier(tmp_path / "zoo", backbone="nano", epochs=1)
    labels = ["a"] * 6 + ["b"] * 6
    zoo.learn(noise, labels=labels, report=False, quiet=True, effort="quick")
    Image.fromarray(noise[0]).save(tmp_path / "a.png")
    script = SCRIPT.replace(repr(HEAVY), repr(HEAVIER))
    said = python("-c", script, json.dumps([["predict", "zoo", "a.png"]]), cwd=tmp_path)
    assert json.loads(said) == {"predict zoo a.png": [0, ["torch"]]}


def test_ctrl_c_during_the_imports_ends_quietly() -> None:
    """The interruption comes at the first module that the command line needs."""
    code = """if True:
        import runpy, sys
        class Interrupting:
            def find_spec(self, name, *_):
                if name == "hashprompt.cli":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupting())
        runpy.run_module("hashprompt", run_name="__main__")
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
