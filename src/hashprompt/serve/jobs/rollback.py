"""Undo what an unfinished learn has done: a cancelled or failed one, or one of somebody else."""

from collections.abc import Collection
from pathlib import Path

from hashprompt.errors import UserError
from hashprompt.photos.learn_job import LearnJob
from hashprompt.photos.store.store import Store
from hashprompt.texts import visible


def is_free(store: Store) -> bool:
    """Whether nobody writes to the classifier; a learn that was stopped may still be saving."""
    try:
        with store.lock("cancelling"):
            return True
    except UserError:
        return False


def unfinished_source(store: Store) -> str | None:
    """The list of photos of the learn that is unfinished in the classifier, if there is one."""
    unfinished = LearnJob.read(store.learning)
    return None if unfinished is None else unfinished.source


def left_elsewhere(store: Store, own: Collection[str]) -> str | None:
    """What a learn is called that somebody else left unfinished: no other can begin.

    Args:
        own: lists of photos of the server's own learns, which it takes care of.
    """
    try:
        job = LearnJob.read(store.learning)
    except UserError:
        return "unknown photos"  # it is damaged, and in the way all the same
    if job is None or job.source in own:
        return None
    if not store.is_new and job.is_done(store.version().info):
        return None  # only clearing up is left, which the next learn does
    return "photos from memory" if job.source is None else visible(Path(job.source).name)


def drop_unfinished(store: Store) -> str:
    """Drop the unfinished learn, with its first look; in words, what answers now.

    Raises:
        UserError: if it is still running, or the version before is damaged.
    """
    with store.lock("dropping a learn"):
        try:
            job = LearnJob.read(store.learning)
        except UserError:  # a damaged one is dropped too
            job = None
        if job is not None and job.before is not None and job.is_looked_at(store.version().info):
            store.go_to(job.before)
        store.drop_learning()
        answers = "nothing is learned yet" if store.is_new else f"version {store.current()} answers"
    return f"The unfinished learn is dropped; {answers}."


def take_back(store: Store, source: Path) -> str:
    """Leave nothing of a learn in the classifier, so that the next one can begin.

    Args:
        source: the list of its photos.

    Returns:
        In words, what became of the version that it had made; empty if it had made none.

    Raises:
        UserError: if another program uses the classifier, or the version before is damaged.
    """
    with store.lock("cancelling"):
        of_whom = unfinished_source(store)
        if of_whom not in (None, str(source)):
            return ""  # somebody learns something else since
        version = None if store.is_new else store.version()
        # Also if the learn is over: it may have been cancelled just before it could say so.
        is_ours = version is not None and _is_learned_from(version.info, source)
        before = version.info["parent"] if version is not None and is_ours else None
        if before is not None:
            store.go_to(before)
        store.drop_learning()
    if version is None or not is_ours:
        return ""
    if before is not None:
        return f"What it had learned is taken back: version {before} answers, as before."
    return (
        f"It was the first learn, with no version before it to go back to: version "
        f"{version.number} stays, with what it had learned so far."
    )


def _is_learned_from(info: dict[str, object], source: Path) -> bool:
    """Whether a version was learned, and not edited, from a list of photos."""
    return info["source"] == source.stem and not info.get("edit")
