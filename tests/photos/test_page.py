"""The page of what a learn changed, from changes small enough to check by hand."""

import copy
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from hashprompt.photos.report import page as page_module
from hashprompt.photos.report.changes import Changes, ClassChange
from hashprompt.photos.report.figures import (
    LOSS,
    draw_accuracy,
    label_of,
    rows_to_draw,
    thumbnail,
)
from hashprompt.photos.report.page import render_page, write_report

OLD = {"classes": ["robin", "wren", "gull"]}
# Old classes: 26 of 28 right before, 22 of 28 after; robin has 6 newly held-out photos besides.
INFO: dict[str, Any] = {
    "number": 3,
    "created": "2026-05-31T14:02:11+00:00",
    "source": "2026-05",
    "edit": None,
    "frozen_fit": False,
    "classes": ["robin", "wren", "gull", "<b>owl</b>", "kite"],
    "batches": [[0, 1], [2], [0, 3, 4]],
    "batch_names": ["spring", "2026-04", "2026-05"],
    "images": {"robin": [72, 18], "wren": [40, 8], "gull": [41, 8], "<b>owl</b>": [20, 5]}
    | {"kite": [3, 0]},
    "accuracy": {"robin": [15, 18], "wren": [4, 8], "gull": [8, 8], "<b>owl</b>": [3, 5]}
    | {"kite": [0, 0]},
    "before": {"robin": [12, 12], "wren": [7, 8], "gull": [7, 8]},
    "after": {"robin": [10, 12], "wren": [4, 8], "gull": [8, 8]},
    "confusions": [["wren", "<b>owl</b>", 3], ["robin", "wren", 2], ["<b>owl</b>", "kite", 1]],
    "temperature": 7.134,
    "calibration": {"images": 39, "fitted": True, "error_uncalibrated": 21.37, "error": 2.94},
    "seconds": {"statistics": 10.0, "training": 30.0},
    "total_seconds": 44.4,
    "notes": ["2 photos of wren & gull are gone."],
}
SMALL = {"confusions": [], "notes": [], "seconds": {}}
UNFITTED = {"temperature": 5.0, "calibration": {"images": 0, "fitted": False}}


def changed(**fields: Any) -> Changes:
    return Changes(copy.deepcopy(INFO) | fields, OLD, 3_400_000, 2_900_000)


def picture(**fields: Any) -> dict[str, Any]:
    image = torch.zeros(3, 200, 400, dtype=torch.uint8)
    image[0] = 200
    named = {"name": "a.jpg", "truth": "wren", "predicted": "<b>owl</b>", "lost": True}
    return {"image": image, **named, **fields}


def many(old: int, new: int) -> Changes:
    """Old class i of `old` lost i points of 100; new ones are all right."""
    names = [f"class {i}" for i in range(old + new)]
    return Changes(
        copy.deepcopy(INFO)
        | SMALL
        | {
            "classes": names,
            "batches": [list(range(old)), list(range(old, old + new))],
            "batch_names": ["first", "second"],
            "images": {key: [9, 100] for key in names},
            "accuracy": {n: [100 - i if i < old else 100, 100] for i, n in enumerate(names)},
            "before": {key: [100, 100] for key in names[:old]},
            "after": {n: [100 - i, 100] for i, n in enumerate(names[:old])},
        },
        {"classes": names[:old]} if old else None,
        10,
        5,
    )


def text_of(html: str) -> str:
    """What a reader sees, one piece of text per line."""
    parser, pieces = HTMLParser(), []
    parser.handle_data = lambda data: pieces.append(data.strip())  # type: ignore[method-assign]
    parser.feed(html[html.index("<body>") :])
    return "\n".join(filter(None, pieces))


@pytest.fixture(scope="module")
def page() -> str:
    return render_page(changed(), [picture(), picture(name="b.jpg", lost=False)], "birds")


def test_the_head_names_the_version_and_the_main_numbers(page: str) -> None:
    assert "<title>birds, version 3: learned 2026-05</title>" in page
    text = text_of(page)
    assert text.startswith("birds, version 3: learned 2026-05\n2 new classes and more photos of 1 ")
    assert "2026-05-31 14:02:11 UTC" in text
    assert "<h1>Version 3: learned 2026-05</h1>" in render_page(changed(**SMALL), [])
    assert "Accuracy now\n76.9 %\non 39 held-out photos" in text  # 30 of 39
    assert "Old classes\n92.9 → 78.6\n% right, before → after" in text
    assert "Classes\n5\n2 new" in text
    assert "Size\n3.4 MB\n+0.5 MB with this session" in text
    assert "Time\n44 s\n" in text


def test_the_tables_hold_every_class_losses_and_confusions(page: str) -> None:
    text = text_of(page)
    assert "5 classes in numbers" in text
    for row in (
        "wren\n2\nold\n40\n8\n88 %\n50 %\n-37.5",
        "robin\n1\nold\n72\n18 (12 before)\n100 %\n83 %\n-16.7",
        "<b>owl</b>\n4\nnew\n20\n5\n–\n60 %",
        "kite\n5\nnew\n3\n0\n–\n–",
    ):
        assert f"\n{row}\n" in text
    assert "photos held out by this session do not count" in text
    wren = text.index("\nwren\n88 %\n50 %\n37.5\n8\n<b>owl</b> (3×)\n")
    robin = text.index("\nrobin\n100 %\n83 %\n16.7\n18 (12 before)\nwren (2×)\n")
    assert text.index("Old classes with lower accuracy") < wren < robin
    crossed, others = map(text.index, ("New confusions between old and new", "Other confusions"))
    assert crossed < text.index("\nwren\nold\n<b>owl</b>\nnew\n3\n") < others
    assert others < text.index("\nrobin\nold\nwren\nold\n2\n")
    assert "3 wrong answers in rarer pairs not listed." in text  # 39 - 30 wrong, 6 listed


def test_pictures_have_captions_and_a_page_with_them_a_warning(page: str) -> None:
    text, bare = text_of(page), text_of(render_page(changed(**SMALL), []))
    assert "wren\n, taken for\n<b>owl</b>\nwas right before\na.jpg\n" in text
    assert "wren\n, taken for\n<b>owl</b>\nb.jpg\n" in text
    assert "This page shows your photos" in text
    assert "This page shows your photos" not in bare
    assert "Confused photos" not in bare


def test_calibration_time_and_notes_come_last(page: str) -> None:
    text = text_of(page)
    assert "temperature\n7.13\nfitted to 39 held-out photos" in text
    assert "calibration error without it\n21.4 points" in text
    assert "calibration error with it\n2.9 points" in text
    assert "\ntraining\n30.0 s\n75 %\nstatistics\n10.0 s\n25 %\n" in text
    assert "2 photos of wren & gull are gone." in text
    assert re.findall("<h2>(.*?)</h2>", page) == [
        "Accuracy by class, before and after",
        "Old classes with lower accuracy",
        "New confusions between old and new classes",
        "Other confusions",
        "Confused photos",
        "Calibration",
        "Time",
        "Notes",
    ]


def test_names_never_become_markup() -> None:
    evil = '"><script>alert(1)</script>'
    info = {"source": evil, "batch_names": [evil] * 3, "notes": [evil]}
    html = render_page(changed(**info), [picture(name=evil, truth=evil, predicted=evil)], evil)
    assert "<script" not in html
    assert "<b>owl" not in html
    assert text_of(html).count(evil) >= 6


def test_the_page_is_one_file_without_scripts_or_references(page: str) -> None:
    assert not re.search(r"<(script|link|iframe|object)|https?://|url\(|@import|\son\w+=", page)
    sources = re.findall(r'(?:src|srcset|href)="([^"]*)"', page)
    assert len(sources) == 2 + 2  # a figure, light and dark, and two photos
    assert all(re.match("data:image/(png|jpeg);base64,", source) for source in sources)


def test_without_held_out_photos_the_page_says_not_tested() -> None:
    nothing = {name: [0, 0] for name in INFO["classes"]}
    html = render_page(changed(accuracy=nothing, before={}, after={}, **SMALL, **UNFITTED), [])
    text = text_of(html)
    assert "Accuracy now\n–\nnot tested" in text
    assert "Old classes\n–\nnot tested" in text
    assert "Old classes could not be tested." in text
    assert "Not tested: there are no held-out photos." in text
    assert "to fit the temperature: probabilities use 5.00" in text
    assert "<img" not in html
    assert "None" not in text


def test_a_first_learn_of_one_class_has_nothing_to_lose() -> None:
    text = text_of(render_page(many(0, 1), []))
    assert "Old classes\n–\nthere were none" in text
    assert "Size\n0.0 MB\nthe first version" in text
    assert "1 class in numbers" in text
    assert "lower accuracy" not in text
    assert "onfusions" not in text


def test_no_loss_is_said_too() -> None:
    text = text_of(
        render_page(changed(before={"gull": [8, 8]}, after={"gull": [8, 8]}, **SMALL), [])
    )
    assert "Old classes with lower accuracy\nNone." in text


def test_two_hundred_classes_are_all_in_the_table_and_forty_in_the_figure() -> None:
    changes = many(100, 100)
    text = text_of(render_page(changes, []))
    assert text.count("\nold\n9\n100\n") == text.count("\nnew\n9\n100\n") == 100
    assert "Shown: 40 of 200 classes, the largest losses first." in text
    drawn = rows_to_draw(changes.classes())
    assert [row.name for row in drawn[:3]] == ["class 99", "class 98", "class 97"]
    assert sum(row.is_new for row in drawn) == 20


def test_few_new_classes_leave_their_room_to_old_ones() -> None:
    drawn = rows_to_draw(many(100, 3).classes())
    assert [row.is_new for row in drawn] == [False] * 37 + [True] * 3


def test_the_figure_draws_before_and_after_where_they_are() -> None:
    rows = rows_to_draw(changed().classes())
    assert [row.name for row in rows] == ["wren", "robin", "gull", "<b>owl</b>"]
    axes = draw_accuracy(rows, {row.name: row.name for row in rows}).axes[0]
    bars = [line for line in axes.lines if line.get_linestyle() == "-"]
    assert [tuple(bar.get_xdata()) for bar in bars] == [
        (87.5, 50.0),
        (100.0, pytest.approx(100 * 10 / 12)),
        (87.5, 100.0),
    ]
    assert [bar.get_color() == LOSS for bar in bars] == [True, True, False]
    dots = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert dots["after, not lost"] == [[100.0, 2.0]]
    assert dots["new class"] == [[60.0, 3.0]]
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.name for row in rows]


def test_a_known_class_without_earlier_answers_is_a_single_dot() -> None:
    rows = [ClassChange("robin", False, 9, 4, None, 75.0)]
    axes = draw_accuracy(rows, {"robin": "robin"}).axes[0]
    assert [line.get_label() for line in axes.lines] == ["after, not lost"]


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("Rotkehlchen, häufig", "Rotkehlchen, häufig"),
        ("$x^2$", r"\$x^2\$"),
        ("小鳥", "number 7"),
        ("a" * 30, "a" * 24 + "…"),
    ],
)
def test_names_are_drawn_as_they_can_be(name: str, drawn: str) -> None:
    assert label_of(name, 7) == drawn


@pytest.mark.parametrize(
    ("size", "shown"), [((200, 400), (160, 80)), ((900, 300), (53, 160)), ((32, 32), (32, 32))]
)
def test_pictures_are_at_most_160_pixels_and_never_enlarged(
    size: tuple[int, int], shown: tuple[int, int]
) -> None:
    image = torch.zeros(3, *size, dtype=torch.uint8)
    image[0] = 200
    with Image.open(io.BytesIO(thumbnail(image))) as small:
        assert (small.format, small.size) == ("JPEG", shown)
        colour = np.array(small).mean((0, 1))
        assert not small.getexif()
    assert colour == pytest.approx([200, 0, 0], abs=4)


def test_a_report_that_cannot_be_written_is_a_warning_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "render_page", lambda *_: "page")
    (tmp_path / "taken").write_text("a file")
    with pytest.warns(UserWarning, match="No report: Could not write"):
        assert write_report(tmp_path / "zoo", changed(), [], tmp_path / "taken") is None
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]
    written = write_report(tmp_path / "zoo", changed(), [], True)
    assert written == tmp_path / "zoo-reports" / "version-0003.html"
