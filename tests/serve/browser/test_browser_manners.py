"""The page in a real browser: unsure photos, history, edits; for everybody, and safely."""

import re
from pathlib import Path
from typing import Any

import pytest
from visits import CONTRAST, Visit, ask, change_state, go_to_first, open_tab, say_instead

expect = pytest.importorskip("playwright.sync_api", reason="pip install playwright").expect
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

TABS = ("Ask", "Teach", "Unsure", "History")
NAMED = re.compile(r"\S")
HOSTILE = "<img src=x onerror=window.broken=1>"


# Unsure. ------------------------------------------------------------------------------------------


def test_photos_are_kept_only_after_the_switch_and_can_be_removed(page: Any, photos: Path) -> None:
    ask(page, photos / "noise.png")
    open_tab(page, "Unsure")
    switch = page.get_by_role("switch", name="Store unknown and unsure photos")
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(page.locator("#groups")).to_have_text("No photos are stored.")
    switch.click()
    where = "are stored in the folder trees-serving/unsure on the server"
    expect(page.locator("#keep-text")).to_contain_text(where)
    open_tab(page, "Ask")
    ask(page, photos / "noise.png")
    expect(page.locator(".answer").first.get_by_role("heading")).to_have_text("Unknown")
    open_tab(page, "Unsure")
    box = page.get_by_role("checkbox")
    expect(box).to_have_count(1)
    box.check()
    assert page.locator(".tick img").evaluate(
        "image => image.decode().then(() => image.naturalWidth)"
    )
    page.get_by_role("button", name="Remove ticked photos").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("#groups")).to_contain_text("No photos yet")
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "false")


def test_a_cluster_is_named_and_taught(page: Any) -> None:
    photo = {"file": "x.png", "label": "ash", "probability": 0.4, "unknown": 1.0, "when": ""}
    two = [{"id": name * 32, **photo} for name in "ab"]
    clusters = [{"id": "cluster-1", "likely": None, "photos": two}]
    stored = {"keep_unsure": True, "folder": "trees-serving/unsure", "clusters": clusters}
    say_instead(page, "/api/unsure", stored)
    refusal = {"error": "No more sessions now.", "request": "1"}
    say_instead(page, "/api/unsure/teach", refusal, status=409)
    open_tab(page, "Unsure")
    page.get_by_role("checkbox").first.uncheck()
    page.get_by_role("button", name="Teach ticked photos").click()
    expect(page.get_by_role("alert").filter(has_text="Enter the class")).to_be_visible()
    page.get_by_label("Class", exact=True).fill("fig")
    with page.expect_request("**/api/unsure/teach") as sent:
        page.keyboard.press("Enter")
    assert sent.value.post_data_json == {"photos": ["b" * 32], "label": "fig"}
    expect(page.get_by_role("alert").filter(has_text="No more sessions now.")).to_be_visible()


# History. -----------------------------------------------------------------------------------------


def rename(page: Any, old: str, new: str) -> None:
    open_tab(page, "History")
    page.get_by_role("button", name=f"Rename {old}").click()
    page.get_by_label("New name").fill(new)
    page.get_by_role("dialog").get_by_role("button", name="Rename").click()
    expect(page.locator("#history-said")).to_contain_text(new)


def test_undo_is_confirmed_and_can_be_taken_back(page: Any) -> None:
    rename(page, "cedar", "oak")
    expect(page.locator("#status")).not_to_contain_text("Version 1,")
    page.get_by_role("button", name="Undo the last change").click()
    dialog = page.get_by_role("dialog")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    dialog.get_by_role("button", name="Cancel").click()
    open_tab(page, "Ask")
    open_tab(page, "History")
    assert set(sent) <= {"GET"}
    page.get_by_role("button", name="Undo the last change").click()
    dialog.get_by_role("button", name="Undo").click()
    expect(page.locator("#status")).to_have_text("Version 1, 3 classes")
    expect(page.locator("#classes")).to_contain_text("cedar")
    expect(page.locator("#versions li").first).to_contain_text("undone")
    newest = page.get_by_role("button", name="Restore version").first
    newest.click()
    dialog.get_by_role("button", name="Restore").click()
    expect(page.locator("#classes")).to_contain_text("oak")
    go_to_first(page)


def test_classes_are_merged(page: Any, photos: Path) -> None:
    open_tab(page, "History")
    merge = page.get_by_role("button", name="Merge")
    expect(merge).to_be_disabled()
    page.get_by_role("checkbox", name="ash").check()
    page.get_by_role("checkbox", name="elm").check()
    merge.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("ash and elm become one class")
    dialog.get_by_label("Name of the merged class").fill("leafy")
    dialog.get_by_role("button", name="Merge").click()
    expect(page.locator("#classes .title")).to_have_text(["leafy", "cedar"])
    open_tab(page, "Ask")
    ask(page, photos / "more" / "elm" / "0-0.png")
    expect(page.locator(".answer .bars li").first).to_contain_text("leafy")
    go_to_first(page)


def test_a_class_is_forgotten_only_after_a_question(page: Any, photos: Path) -> None:
    open_tab(page, "History")
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Forget elm").click()
    expect(dialog).to_contain_text("Earlier versions still do, so you can undo this.")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator("#classes .title")).to_have_text(["ash", "cedar", "elm"])
    page.get_by_role("button", name="Forget elm").click()
    dialog.get_by_role("button", name="Forget").click()
    expect(page.locator("#classes .title")).to_have_text(["ash", "cedar"])
    open_tab(page, "Ask")
    ask(page, photos / "more" / "elm" / "0-0.png")
    expect(page.locator(".answer")).not_to_contain_text("elm")
    go_to_first(page)


def test_the_line_has_a_point_for_every_tested_version(page: Any) -> None:
    open_tab(page, "History")
    page.locator("#versions li").first.wait_for()
    tested = page.locator("#versions li").filter(has_not_text="not tested").count()
    assert page.locator("#chart circle").count() == tested > 0
    expect(page.get_by_role("img", name="Accuracy over versions. version 1:")).to_be_visible()


def test_a_hostile_class_name_is_text_everywhere(page: Any, photos: Path) -> None:
    rename(page, "ash", HOSTILE)
    expect(page.locator("#classes")).to_contain_text(HOSTILE)
    expect(page.locator("#history-said")).to_contain_text(HOSTILE)
    expect(page.locator("#versions li").first).to_contain_text(HOSTILE)
    open_tab(page, "Ask")
    ask(page, photos / "trees" / "ash" / "0-0.png")
    expect(page.get_by_role("heading", level=3)).to_contain_text(HOSTILE)
    assert page.locator("#known-classes option").first.get_attribute("value") == HOSTILE
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("window.broken") is None
    go_to_first(page)


# For everybody. -----------------------------------------------------------------------------------


def test_the_keyboard_alone_is_enough(page: Any, photos: Path) -> None:
    # Playwright starts to listen some time after it was asked to: a key may be faster.
    page.on("filechooser", lambda chooser: None)
    keys = page.keyboard
    keys.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    keys.press("Tab")
    expect(page.get_by_role("tab", name="Ask")).to_be_focused()
    assert page.locator(":focus").evaluate("node => getComputedStyle(node).outlineWidth") == "3px"
    keys.press("ArrowLeft")
    expect(page.get_by_role("tab", name="History")).to_be_focused()
    keys.press("Home")
    keys.press("ArrowRight")
    expect(page.get_by_role("tabpanel", name="Teach")).to_be_visible()
    keys.press("Tab")
    with page.expect_file_chooser() as chooser:
        keys.press("Enter")
    chooser.value.set_files(photos / "noise.png")
    expect(page.get_by_label("Class of 1 photo")).to_be_focused()
    keys.type("fig")
    keys.press("Enter")
    expect(page.locator("#plan")).to_be_focused()
    expect(page.locator("#plan")).to_contain_text("1 new class")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_is_readable_named_and_fits_a_phone(page: Any, photos: Path, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 740})
    ask(page, photos / "trees" / "ash" / "0-0.png", photos / "broken.jpg")
    open_tab(page, "Teach")
    page.locator("#teach-tree").set_input_files(photos / "trees")
    seen = 0
    for tab in TABS:
        open_tab(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, tab
        for role in ("button", "textbox", "checkbox", "radio", "switch", "combobox", "link", "img"):
            unnamed = page.get_by_role(role).count() - page.get_by_role(role, name=NAMED).count()
            assert unnamed == 0, (tab, role)
        found = page.evaluate(CONTRAST)
        seen += len(found)
        assert [(round(ratio, 2), text) for ratio, text in found if ratio < 4.5] == [], tab
    assert seen > 60
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 19)"
    assert dark == (scheme == "dark")


def test_an_unfinished_session_is_shown_and_dropped(page: Any) -> None:
    change_state(page, unfinished="more")
    page.reload()
    open_tab(page, "Teach")
    notice = page.locator("#unfinished")
    expect(notice).to_contain_text("An unfinished session (more) was started outside this page")
    expect(notice).to_contain_text("hashprompt learn trees --resume")
    say_instead(page, "/api/unfinished", {"version": 1, "text": "It is dropped."})
    notice.get_by_role("button", name="Drop it").click()
    page.unroute("**/api/state")
    page.get_by_role("dialog").get_by_role("button", name="Drop it").click()
    expect(page.locator("#teach-note")).to_have_text("It is dropped.")
    expect(notice).to_be_hidden()


def test_read_only_hides_what_cannot_be_done(
    chromium: Any, address: str, journey: dict[str, str]
) -> None:
    visit = Visit(chromium, address)
    change_state(visit.page, read_only=True, unsure=0)
    visit.page.goto("/#teach")
    expect(visit.page.get_by_text("Read-only: no teaching, no edits.")).to_be_visible()
    expect(visit.page.get_by_role("tabpanel", name="Ask")).to_be_visible()
    expect(visit.page.get_by_role("tab")).to_have_text(["Ask", "History"])
    open_tab(visit.page, "History")
    expect(visit.page.locator("#classes li")).to_have_count(3)
    expect(visit.page.get_by_role("button")).to_have_count(0)
    visit.close()
