"""Names of strangers are shown, never obeyed: on the terminal, in JSON, Markdown and figures."""

import ast
import io
import json
import os
import subprocess
import sys
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from strange_names import NAMES, SEEN, assert_harmless

import hashprompt
from hashprompt.cli import printing
from hashprompt.errors import UserError
from hashprompt.report.compare import Comparison, Row, Run
from hashprompt.report.figures import FIGURES, compare_figure, cost_figure, render
from hashprompt.report.html import render_page
from hashprompt.storage import download
from hashprompt.texts import json_text, markdown_text, visible
from hashprompt.ui.progress import ProgressBars
from hashprompt.ui.terminal import PlainTable, Terminal, styled

SOURCES = Path(hashprompt.__file__).parent
ANY_NAME = st.sampled_from([*NAMES.values()]) | st.text()


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for console in (printing.console, printing.errors):
        monkeypatch.setattr(console, "_width", 400)
        monkeypatch.setattr(console, "_height", 50)


# Texts. --------------------------------------------------------------------------------------


def test_every_character_that_cannot_be_seen_is_shown_by_its_code() -> None:
    for code in [*range(0x3000), *range(0xD800, 0xE000), *range(0xFE00, 0x10000), 0xE0001]:
        shown = visible(chr(code))
        assert_harmless(shown)
        hidden = unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        assert (shown != chr(code)) == hidden
        assert visible(shown) == shown


@pytest.mark.parametrize("name", ["Zürich", "می‌خواهم", "👩‍🌾 café", "日本 語", "a\\b", "50 % [x]"])
def test_a_name_of_any_language_stays_as_it_is(name: str) -> None:
    assert visible(name) == name


@given(ANY_NAME, st.sampled_from((None, "utf-8", "ascii", "latin-1")))
def test_json_is_harmless_and_the_same_when_parsed(name: str, encoding: str | None) -> None:
    text = json_text({name: [name]}, encoding)
    assert_harmless(text)
    assert json.loads(text) == {name: [name]}
    text.encode(encoding or "utf-8")
    assert '"Zürich"' in json_text(["Zürich"], "utf-8")


# The terminal. -------------------------------------------------------------------------------


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> tuple[Terminal, io.StringIO]:
    """A terminal with colours, and what is written to it."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    terminal, written = Terminal(), io.StringIO()
    terminal.file, terminal._width = written, 200
    return terminal, written


@pytest.mark.parametrize("name", [name for name in NAMES.values() if "\n" not in name])
def test_a_terminal_shows_a_name_however_it_is_printed(
    name: str, screen: tuple[Terminal, io.StringIO]
) -> None:
    from rich.text import Text

    terminal, written = screen
    table = PlainTable(name, title=name)
    table.add_row(name)
    for what in (name, Text(name), styled(name), table):
        terminal.print(what)
    shown = written.getvalue()
    assert shown.count(visible(name)) >= 5  # rich itself takes \\r and \\a out of its `Text`
    for ours in ("\x1b[1m", "\x1b[3m", "\x1b[0m", "\x1b[1;3m"):
        shown = shown.replace(ours, "")
    assert_harmless(shown)


def test_a_cell_of_a_table_is_one_line(screen: tuple[Terminal, io.StringIO]) -> None:
    terminal, written = screen
    table = PlainTable("file", box=None, show_header=False)
    table.add_row(NAMES["a line"])
    terminal.print(table)
    assert written.getvalue().count("\n") == 1


def test_colours_of_ours_still_work(screen: tuple[Terminal, io.StringIO]) -> None:
    terminal, written = screen
    terminal.print(styled(("Error:", "bold"), " [red]x"))
    assert "\x1b[1mError:\x1b[0m [red]x" in written.getvalue()


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_progress_shows_names_as_they_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bars = ProgressBars()
    written = io.StringIO()
    bars.console.file, bars.console._width = written, 200
    bars.on_phase_start(0, name, 10, 0)
    bars.console.print(bars._bars.get_renderable())
    bars.on_message(name)
    assert_harmless(written.getvalue())
    assert f"task 1 · {visible(name)}" in written.getvalue()
    assert written.getvalue().splitlines()[-1] == visible(name)


def test_a_download_shows_its_file_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Screen())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with download._bar("\x1b[31m[bold]vit{0}\r.bin", 5) as show:
        show(5)
    assert r"\x1b[31m[bold]vit{0}\r.bin" in sys.stderr.getvalue()


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_errors_and_warnings_show_names(
    name: str, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        warnings.warn_explicit(f"odd {name}", UserWarning, str(SOURCES / "x.py"), 1)
        warnings.warn_explicit(f"odd {name}", UserWarning, "/elsewhere/y.py", 1)
        raise UserError(f"no {name}")

    of_others: list[str] = []
    monkeypatch.setattr("hashprompt.cli.app.app", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: of_others.append(str(message))  # type: ignore
        outcome = cli("history")
    assert outcome.code == 1
    assert outcome.err.startswith("Warning: odd ")
    assert "\nError: no " in outcome.err
    assert_harmless(outcome.err)
    assert of_others == [visible(f"odd {name}", lines=True)]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_complaints_about_arguments_show_them(name: str, cli: Any) -> None:
    for arguments in ([f"--{name}"], [name], ["history", f"--{name}"], ["run", "--seed", name]):
        outcome = cli(*arguments)
        assert outcome.code == 2
        assert_harmless(outcome.err.replace("\n", " "))


# Nothing else prints. ------------------------------------------------------------------------

PRINTING = {"ui/terminal.py", "ui/progress.py", "cli/printing.py"}
PRINTING |= {"storage/download.py", "data/reading/threads.py"}  # bars
OF_TYPER = {"typer.echo", "typer.secho", "typer.confirm", "typer.prompt"}


def found_prints(code: str) -> list[str]:
    """Ways to a terminal that are not ours."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rich":
            found.append(f"from {node.module}")
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] == "rich"]
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            if text in {"print", *OF_TYPER} or text.startswith(("sys.stdout.", "sys.stderr.write")):
                found.append(text)
    return found


def test_nothing_is_printed_but_through_our_terminal() -> None:
    files = {path.relative_to(SOURCES).as_posix(): path for path in SOURCES.rglob("*.py")}
    assert files.keys() >= PRINTING
    for name, path in files.items():
        if name not in PRINTING:
            assert not found_prints(path.read_text()), name


def test_the_search_for_prints_finds_them() -> None:
    for code in (
        "print(1)",
        "import typer\ntyper.echo(1)",
        "sys.stdout.write('')",
        "from rich.console import Console",
        "import rich",
    ):
        assert found_prints(code)


# Commands on data and runs. ------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders with every hostile name that is text at all."""
    folder = tmp_path_factory.mktemp("data") / NAMES["a colour"]
    for number, name in enumerate(name for name in NAMES.values() if "\udce4" not in name):
        (folder / name).mkdir(parents=True)
        for i in range(4):
            colour = (10 * number, 40 * i, 99)
            Image.new("RGB", (24, 24), colour).save(folder / name / f"{i}{name[:20]}.png")
        (folder / name / f"notes{name}.txt").touch()
    return folder


def test_data_check_shows_classes_and_files(cli: Any, hostile_folder: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "new" / f"{NAMES['right to left']}.png"
    outcome = cli("data", "check", hostile_folder, "--all", "--sheet", sheet)
    assert outcome.code == 0, outcome
    assert_harmless(outcome.out + outcome.err)
    for name in SEEN:
        assert f"{name} " in outcome.out
    assert Image.open(sheet).size[0] > 500


def test_names_that_are_no_text_are_refused(cli: Any, tmp_path: Path) -> None:
    for label in ("ash", "birch"):
        (tmp_path / label).mkdir()
        for i in range(4):
            Image.new("RGB", (24, 24), (40 * i, 9, 9)).save(tmp_path / label / f"{i}a\udce4.png")
    outcome = cli("data", "check", tmp_path)
    assert outcome.code == 1
    assert r"a\udce4.png is not valid UTF-8" in outcome.said


def result_of(name: str) -> dict[str, Any]:
    return {
        "config": dict.fromkeys(("method", "stream", "preset", "backbone"), name)
        | {"options": {name: name}},
        "protocol": {name: name, "legacy": [name], "class_names": [name]},
        "accuracy": [[90.0, 80.0], [None, 70.0]],
        "metrics": {"FAA": 70.0},
        "after_task": [{"task": t, "average": 90.0 - t} for t in (0, 1)],
        "parameters": {name: 1000, "head": 40},
        "timings": [{"task": t, "phase": name, "seconds": 10.0} for t in (0, 1)],
        "passes": {name: 5},
        "versions": {name: name},
        "diagnostics": [{"task": 0, name: name}],
    }


@given(ANY_NAME)
def test_the_page_of_a_run_shows_names(name: str) -> None:
    page = render_page(result_of(name), [])
    assert_harmless(page)
    page.encode()
    assert "<img src=x" not in page


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_figures_show_names_without_reading_them(name: str) -> None:
    for draw in FIGURES.values():
        figure = draw(result_of(name))
        if figure is not None:
            texts = drawn_texts(figure)
            assert_harmless("".join(texts))
    assert visible(name) in drawn_texts(FIGURES["timings"](result_of(name)))
    assert visible(name) in drawn_texts(FIGURES["parameters"](result_of(name)))
    for draw in (compare_figure, cost_figure):
        assert any(visible(name) in text for text in drawn_texts(draw(comparison(name))))


def drawn_texts(figure: Any) -> list[str]:
    """The texts of a figure as they are drawn; `$…$` would be a formula."""
    from matplotlib.text import Text

    assert render(lambda: figure)
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    return [text._preprocess_math(text.get_text())[0] for text in texts]


def comparison(name: str) -> Comparison:
    run = Run(Path(name), result_of(name), (name,))
    return Comparison((Row(name, name, (run,), {name: name}),))


@given(ANY_NAME)
def test_a_table_in_markdown_holds_no_html_and_no_links(name: str) -> None:
    table = comparison(name).table().to_markdown()
    assert_harmless(table)
    assert table.count("\n") == 3
    row = table.splitlines()[-1]
    assert "<" not in row
    for sign in "`*[]":
        assert row.count(sign) == row.count(f"\\{sign}")
    assert row.replace("\\|", "").count("|") == table.splitlines()[0].count("|")


def test_markdown_of_an_ordinary_name_is_the_name() -> None:
    assert markdown_text("hash (best) top_k=3, lr=0.1 ± 2 %") == "hash (best) top_k=3, lr=0.1 ± 2 %"
    assert markdown_text("a & <b>") == "a &amp; &lt;b&gt;"


# Paths that the system refuses. --------------------------------------------------------------

LONG = "x" * 5000
PATHS: dict[str, Callable[[str], list[str]]] = {
    "run --config": lambda path: ["run", "--config", path],
    "run --out": lambda path: ["run", "--out", path],
    "run -s": lambda path: ["run", "-s", f"folders:{path}"],
    "run -b": lambda path: ["run", "-b", path],
    "run --set data_root": lambda path: ["run", "-s", "split-cub200", "--set", f"data_root={path}"],
    "resume": lambda path: ["resume", path],
    "evaluate": lambda path: ["evaluate", path],
    "report": lambda path: ["report", path],
    "compare": lambda path: ["compare", path],
    "learn": lambda path: ["learn", path, "photos"],
    "predict": lambda path: ["predict", path, "a.jpg"],
    "history": lambda path: ["history", path],
    "undo": lambda path: ["undo", path],
    "diff": lambda path: ["diff", path, "1", "2"],
    "export": lambda path: ["export", path, "x"],
    "data check": lambda path: ["data", "check", path],
    "data list": lambda path: ["data", "list", "--root", path],
    "data fetch": lambda path: ["data", "fetch", "split-cub200", "--root", path],
    "methods check": lambda path: ["methods", "check", f"{path}.py"],
}


@pytest.mark.parametrize("path", [LONG, f"a/{LONG}/b", "a\0b", "a\udce4b", "\x1b[31m"])
@pytest.mark.parametrize("command", PATHS)
def test_a_path_that_cannot_be_is_refused_in_words(
    command: str, path: str, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if command in ("run --out", "data fetch", "data list") and path in ("a\udce4b", "\x1b[31m"):
        pytest.skip("this is a fine folder")
    outcome = cli(*PATHS[command](path))
    assert outcome.code in (1, 2)  # 2: refused by the parser of the command line
    assert "Error" in outcome.said
    assert_harmless(outcome.out + outcome.err)


def test_debug_shows_where_an_error_of_the_system_happened(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise PermissionError(13, "Permission denied", "/some/\x1b[31mplace")

    monkeypatch.setattr("hashprompt.cli.app.app", fail)
    assert cli("history").said.startswith(r"Error: /some/\x1b[31mplace: Permission denied.")
    with pytest.raises(PermissionError):
        cli("--debug", "history")


def test_a_mistake_of_ours_is_not_taken_for_one_of_the_user(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hashprompt.cli.app.app", lambda: int("x"))
    with pytest.raises(ValueError, match="invalid literal"):
        cli("history")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_without_our_letters_gets_their_codes(encoding: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "200"}
    for arguments, code, printed in (
        (["streams"], 0, b""),
        (["history", "日本\u202e"], 1, b"\\u65e5"),
        (["-h"], 0, b""),
    ):
        command = [sys.executable, "-m", "hashprompt", *arguments]
        done = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr
        assert printed in done.stderr


# Configurations. -----------------------------------------------------------------------------

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
CONFIGS = {
    "an alias bomb": (BOMB, "anchors or aliases"),
    "an alias of itself": ("layers: &a [*a]", "anchors or aliases"),
    "deep lists": (f"layers: {'[' * 5000}{']' * 5000}", "nested deeper than 20"),
    "deep lines": ("".join(f"{' ' * i}a:\n" for i in range(400)), "nested deeper than 20"),
    "a large file": ("# " + "x" * 2_000_000, "at most"),
    "a number of many digits": (f"epochs: {'9' * 5000}", "more than 3,500"),
    "a number in base two": (f"epochs: 0b{'1' * 20_000}", "more than 3,500"),
    "a number of 4,000 digits": (f"epochs: 0x{'f' * 3490}", "epochs"),
    "a number beyond all": ("lr: 1e400", "lr"),
    "infinity": ("lr: .inf", "lr"),
    "a number beyond all, as YAML writes it": ("lr: 1.0e+400", "lr"),
    "a control character": ("method: '\x1b[31m'", "special characters"),
    "an escaped control character": ('method: "\\e[31m"', r"`\x1b[31m`"),
    "a null in a path": ('stream: "folders:a\\0b"', r"\x00"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_hostile_configuration_is_refused_in_words(case: str, cli: Any, tmp_path: Path) -> None:
    content, told = CONFIGS[case]
    file = tmp_path / "run.yaml"
    file.write_text(content)
    outcome = cli("run", "--config", file)
    assert outcome.code == 1
    assert told in outcome.said
    assert len(outcome.said) < 1000
    assert_harmless(outcome.err)


@pytest.mark.parametrize(
    "value", ["[&a 1, *a]", "[" * 5000, "1e400", ".inf", "0b" + "1" * 20000, "\x1b", "x" * 200_000]
)
def test_a_hostile_setting_is_refused_in_words(value: str, cli: Any) -> None:
    outcome = cli("run", "--set", f"epochs={value}")
    assert outcome.code == 1
    assert outcome.said.startswith("Error: ")
    assert len(outcome.said) < 1000
    assert_harmless(outcome.err)
