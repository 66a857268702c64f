"""A visit of the page in a real browser."""

import shutil
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
LEARNING, PATIENCE = 300_000, 60_000  # milliseconds: a busy machine is no failure

CONTRAST = Path(__file__).with_name("contrast.js").read_text()


def words(text: str) -> str:
    """Text with one blank between words."""
    return " ".join(text.split())


class Visit:
    """A page that must not request other sites nor break."""

    def __init__(self, chromium: Any, address: str, **options: Any) -> None:
        self._address = address
        self._context = chromium.new_context(base_url=address, reduced_motion="reduce", **options)
        self._context.set_default_timeout(LEARNING)
        self._asked: list[str] = []
        self._complaints: list[str] = []
        self.page = self._context.new_page()
        self.page.on("request", lambda request: self._asked.append(request.url))
        self.page.on("pageerror", lambda error: self._complaints.append(str(error)))
        self.page.on("console", self._listen)

    def _listen(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self._complaints.append(message.text)

    def close(self) -> None:
        self._context.close()
        own = (self._address, "blob:", "data:")
        assert self._asked
        assert [url for url in self._asked if not url.startswith(own)] == []
        assert self._complaints == []


def open_tab(page: Any, name: str) -> None:
    """Open a tab, and wait for its content."""
    page.get_by_role("tab", name=name).click()
    if name == "History":
        page.locator("#classes li").first.wait_for()
    if name == "Unsure":
        page.locator("#groups > *").filter(has_not_text="Clustering").first.wait_for()


def go_to_first(page: Any) -> None:
    """Restore the version that other tests expect."""
    open_tab(page, "History")
    page.get_by_role("button", name="Restore version 1", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    page.get_by_text("Version 1, 3 classes").wait_for()


def ask(page: Any, *files: Path) -> None:
    """Ask about photos, and wait for all answers."""
    page.locator("#ask-files").set_input_files(files)
    page.locator(".answer").first.wait_for()
    while page.locator(".looking").count():
        page.locator(".looking").first.wait_for(state="detached")


def say_instead(page: Any, route: str, body: dict[str, Any], status: int = 200) -> None:
    """Replace the answer of a route."""
    page.route(f"**{route}", lambda asked: asked.fulfill(status=status, json=body))


def change_state(page: Any, **changes: Any) -> None:
    """Change the state that the server reports."""

    def answer(asked: Any) -> None:
        asked.fulfill(json={**asked.fetch().json(), **changes})

    page.route("**/api/state", answer)
