"""The page in a real browser while something is sent, planned or learned."""

from pathlib import Path
from typing import Any

import pytest
from pictures import write_photos
from visits import Visit, open_tab, say_instead

expect = pytest.importorskip("playwright.sync_api", reason="pip install playwright").expect
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

JOB = {
    **{"id": "20260101000000-00000001", "label": "fig", "photos": 6},
    **{"left_out": 0, "effort": "instant", "created": "2026-01-01T00:00:00+00:00"},
    **{"progress": {"text": "reading photos", "fraction": 0.5, "seconds_left": None}},
    **{"state": "running", "message": None, "error": None, "version": None, "report": None},
}
DONE = {**JOB, "state": "done", "message": "Version 2: learned fig."}
PLAN = {
    **{"text": "In detail.", "classes": [{"label": "fig", "photos": 1, "sent": 1, "new": True}]},
    **{"notes": [], "left_out": 0, "answers_after_seconds": 1.0, "done_after_seconds": 1.0},
}


def hold(page: Any, route: str) -> list[Any]:
    """Requests to a route of the server, which wait for an answer."""
    held: list[Any] = []
    page.route(f"**{route}", lambda asked: held.append(asked))
    return held


def next_of(page: Any, held: list[Any]) -> Any:
    """The next held request."""
    for _ in range(600):
        if held:
            return held.pop(0)
        page.wait_for_timeout(100)
    raise AssertionError("no request")


def show_jobs(page: Any, *jobs: dict[str, Any]) -> list[Any]:
    """Show jobs, newest first; requests for one of them are held."""
    say_instead(page, "/api/jobs", list(jobs))
    followed = hold(page, "/api/jobs/*")
    page.reload()
    page.locator("#jobs article").first.wait_for(state="attached")
    return followed


def answer(page: Any, followed: list[Any], *jobs: dict[str, Any]) -> None:
    """Answer the next requests with these states of jobs, each that of its own job."""
    for job in jobs:
        request = next_of(page, followed)
        while not request.request.url.endswith(job["id"]):
            followed.append(request)
            request = next_of(page, followed)
        request.fulfill(json=job)


def bring(page: Any, photo: Path, label: str) -> None:
    page.locator("#teach-files").set_input_files(photo)
    page.locator("#tray input").last.fill(label)


def start(page: Any, photos: Path) -> None:
    """Teach a photo after its plan."""
    open_tab(page, "Teach")
    bring(page, photos / "noise.png", "fig")
    page.get_by_role("button", name="See the plan").click()
    page.get_by_role("button", name="Start teaching").click()


# Teaching. ----------------------------------------------------------------------------------------


def test_photos_added_while_others_are_sent_stay(page: Any, photos: Path) -> None:
    say_instead(page, "/api/plan", PLAN)
    sent = hold(page, "/api/teach")
    start(page, photos)
    request = next_of(page, sent)
    expect(page.locator("#teach-busy")).to_have_text("Sending the photos…")
    bring(page, photos / "trees" / "ash" / "0-0.png", "ash")
    request.fulfill(status=202, json=DONE)
    page.locator("#jobs article[data-state=done]").first.wait_for()
    expect(page.locator("#tray input")).to_have_count(1)
    expect(page.locator("#tray input")).to_have_value("ash")
    expect(page.locator("#tray input")).to_be_focused()


def test_photos_that_could_not_be_sent_are_put_back(page: Any, photos: Path) -> None:
    say_instead(page, "/api/plan", PLAN)
    sent = hold(page, "/api/teach")
    start(page, photos)
    request = next_of(page, sent)
    bring(page, photos / "trees" / "ash" / "0-0.png", "ash")
    request.fulfill(status=409, json={"error": "No more sessions now.", "request": "1"})
    expect(page.locator("#teach-error")).to_have_text("No more sessions now.")
    expect(page.locator("#tray input")).to_have_count(2)
    assert [box.input_value() for box in page.locator("#tray input").all()] == ["fig", "ash"]


def test_an_outdated_plan_is_not_shown(page: Any, photos: Path) -> None:
    asked = hold(page, "/api/plan")
    open_tab(page, "Teach")
    bring(page, photos / "noise.png", "fig")
    page.get_by_role("button", name="See the plan").click()
    request = next_of(page, asked)
    page.locator("#tray input").fill("date")
    request.fulfill(json=PLAN)
    expect(page.locator("#teach-error")).to_contain_text("have changed")
    expect(page.locator("#plan")).to_be_hidden()
    expect(page.get_by_role("button", name="Start teaching")).to_be_hidden()


def test_a_decision_about_a_name_is_dropped_with_its_photos(page: Any, tmp_path: Path) -> None:
    (write_photos(tmp_path / "new", ("fig",), each=2) / "fig").rename(tmp_path / "new" / "ASH")
    open_tab(page, "Teach")
    for _ in range(2):
        page.locator("#teach-tree").set_input_files(tmp_path / "new")
        page.get_by_role("button", name="See the plan").click()
        page.get_by_role("button", name="Same class: ash").click()
        expect(page.locator("#plan li")).to_have_text("ash 2 photos, known")
        page.get_by_role("button", name="Remove ASH").click()


def test_no_photo_is_left_out_silently(page: Any, photos: Path) -> None:
    say_instead(page, "/api/plan", {**PLAN, "left_out": 2})
    open_tab(page, "Teach")
    bring(page, photos / "noise.png", "fig")
    bring(page, photos / "trees" / "ash" / "0-0.png", ".ash")
    page.get_by_role("button", name="See the plan").click()
    expect(page.locator("#teach-error")).to_contain_text("Teach this class separately")
    expect(page.locator("#teach-error")).to_contain_text(".ash")
    page.locator("#tray input").last.fill("ash")
    page.get_by_role("button", name="See the plan").click()
    expect(page.locator("#plan")).to_contain_text("2 files left out: not a photo.")


def test_the_page_shows_whether_photos_are_stored(page: Any) -> None:
    open_tab(page, "Teach")
    expect(page.locator("#teach-kept")).to_have_text("They are deleted once learned.")


# Sessions. ----------------------------------------------------------------------------------------


def test_the_end_of_a_session_keeps_ticked_boxes(page: Any) -> None:
    followed = show_jobs(page, JOB)
    open_tab(page, "History")
    page.get_by_role("checkbox", name="ash").check()
    page.get_by_role("tab", name="History").focus()
    answer(page, followed, DONE)
    page.locator("#jobs article[data-state=done]").wait_for(state="attached")
    page.wait_for_timeout(2000)
    expect(page.get_by_role("checkbox", name="ash")).to_be_checked()


def test_the_end_of_a_session_reloads_an_idle_tab(page: Any) -> None:
    followed = show_jobs(page, JOB)
    open_tab(page, "History")
    page.get_by_role("tab", name="History").focus()
    with page.expect_request("**/api/history"):
        answer(page, followed, DONE)


def test_a_cancelled_session_shows_what_is_left_of_it(page: Any) -> None:
    followed = show_jobs(page, JOB)
    open_tab(page, "Teach")
    cancelled = {**JOB, "state": "cancelled"}
    answer(page, followed, cancelled, {**cancelled, "message": "Version 1 stays."})
    expect(page.locator("#jobs article")).to_contain_text("Version 1 stays.")
    expect(page.locator("#strip")).to_be_hidden()


def test_focus_stays_on_the_card_of_a_session_that_ends(page: Any) -> None:
    followed = show_jobs(page, JOB)
    page.get_by_role("button", name="Show progress").click()
    expect(page.get_by_role("tab", name="Teach")).to_be_focused()
    page.locator("#jobs").get_by_role("button", name="Cancel").focus()
    answer(page, followed, DONE)
    expect(page.locator("#jobs article[data-state=done]")).to_be_focused()


def test_the_strip_shows_what_runs_else_what_waits(page: Any) -> None:
    waiting = {**JOB, "id": "20260101000001-00000002", "state": "waiting"}
    followed = show_jobs(page, waiting, JOB)
    expect(page.locator("#strip-text")).to_contain_text("Learning")
    cancelled = {**waiting, "state": "cancelled", "message": "Nothing was changed by it."}
    answer(page, followed, cancelled)
    page.locator("#jobs article[data-state=cancelled]").wait_for(state="attached")
    expect(page.locator("#strip-text")).to_contain_text("Learning")
    answer(page, followed, DONE)
    expect(page.locator("#strip")).to_be_hidden()


# Words. -------------------------------------------------------------------------------------------


def test_announcements_of_one_second_are_joined(page: Any) -> None:
    page.evaluate(
        """() => import("/static/dom.js").then(({ announce }) => {
          announce("One.");
          setTimeout(() => announce("Two."), 300);
        })"""
    )
    expect(page.locator("#live")).to_have_text("One. Two.")


def test_the_day_of_a_session_does_not_depend_on_the_time_zone(
    chromium: Any, address: str, journey: dict[str, str]
) -> None:
    visit = Visit(chromium, address, timezone_id="America/Los_Angeles")
    visit.page.goto("/")
    said = (
        """() => import("/static/words.js").then(({ learned }) => learned("taught-2026-05-02-a"))"""
    )
    assert visit.page.evaluate(said) == "learned 2 May"
    visit.close()
