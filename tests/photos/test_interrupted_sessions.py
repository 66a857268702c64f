"""A session that is killed leaves the old version or the new one, and can be resumed."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pictures import QUICK, write_photos
from running import PowerCut

from hashprompt import ContinualClassifier, UserError
from hashprompt.data.reading.threads import reading_threads
from hashprompt.engine.optimization import Optimization
from hashprompt.photos import session
from hashprompt.photos.session import LearnSession, find

Make = Callable[..., ContinualClassifier]


def state(classifier: ContinualClassifier) -> dict[str, torch.Tensor]:
    store = classifier.store
    return store.tensors(store.version())


@pytest.fixture(scope="module")
def undisturbed(
    spring: Path, summer: Path, tmp_path_factory: pytest.TempPathFactory
) -> ContinualClassifier:
    folder = tmp_path_factory.mktemp("undisturbed") / "trees"
    classifier = ContinualClassifier(folder, backbone="nano", checkpoint_minutes=0, **QUICK)
    for photos in (spring, summer):
        classifier.learn(photos, report=False, quiet=True)
    return classifier


def assert_same(found: ContinualClassifier, expected: ContinualClassifier) -> None:
    new, old = state(found), state(expected)
    assert new.keys() == old.keys()
    assert all(torch.equal(new[name], old[name]) for name in old)
    for name in ("accuracy", "before", "confusions", "temperature", "distances"):
        a, b = (c.store.version().info[name] for c in (found, expected))
        assert a == b, name


def killed(classifier: ContinualClassifier, photos: Path, step: str, **how: object) -> None:
    """The power fails at the start of a step: `run`, or `train` after the fit."""

    def cut(*_: object) -> None:
        raise PowerCut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, step, cut)
        with pytest.raises(PowerCut):
            classifier.learn(photos, report=False, quiet=True, **how)  # type: ignore[arg-type]


def test_other_photos_wait_until_the_unfinished_learn_is_settled(
    make: Make, spring: Path, summer: Path
) -> None:
    killed(make(), spring, "run")
    with pytest.raises(UserError, match="unfinished session") as error:
        make().learn(summer, report=False, quiet=True)
    assert "--resume" in str(error.value)
    assert "--discard" in str(error.value)
    learned = make().learn(summer, discard=True, report=False, quiet=True)
    assert learned.changes.summary()["new_classes"] == ["ash", "date", "elm"]


@pytest.fixture(scope="module")
def looked(
    spring: Path, summer: Path, tmp_path_factory: pytest.TempPathFactory
) -> ContinualClassifier:
    """Version 1 is of spring; version 2 is the look of a learn of summer that was killed then."""
    folder = tmp_path_factory.mktemp("looked") / "trees"
    classifier = ContinualClassifier(folder, backbone="nano", **QUICK)
    classifier.learn(spring, effort="instant", report=False, quiet=True)
    killed(classifier, summer, "train")
    assert (classifier.store.current(), len(classifier.classes_)) == (2, 5)
    return classifier


@pytest.fixture
def half(looked: ContinualClassifier, make: Make, tmp_path: Path) -> Make:
    """`half()` opens a copy of it, anew each time."""
    shutil.copytree(str(looked.folder), tmp_path / "half")
    return lambda: make("half")


def assert_figs_on_spring(classifier: ContinualClassifier) -> None:
    assert classifier.store.version().info["parent"] == 1
    assert classifier.classes_.tolist() == ["ash", "birch", "cedar", "fig"]


def test_a_learn_is_dropped_with_its_look_once_the_other_photos_are_understood(
    half: Make, tmp_path: Path
) -> None:
    figs = write_photos(tmp_path / "figs", ("ash", "fig"), each=5, seed=3)
    (figs / "ash").rename(figs / "Ash")
    how = {"effort": "instant", "discard": True, "report": False, "quiet": True}
    for photos in (figs, tmp_path / "fgis"):
        with pytest.raises(UserError, match=r"Ash|fgis"):
            half().learn(photos, **how)
        assert find(half().store) is not None
    half().learn(figs, rename={"Ash": "ash"}, **how)
    assert_figs_on_spring(half())


@pytest.mark.parametrize("then", ["resume", "discard"])
def test_a_learn_that_dropped_another_is_killed_before_its_look(
    half: Make, tmp_path: Path, then: str
) -> None:
    figs = write_photos(tmp_path / "figs", ("fig",), each=5)
    first = figs if then == "resume" else write_photos(tmp_path / "more", ("elm",), each=5)
    killed(half(), first, "run", effort="instant", discard=True)
    half().learn(figs, effort="instant", report=False, quiet=True, **{then: True})
    assert_figs_on_spring(half())


def test_where_the_user_went_after_a_kill_a_learn_begins(
    half: Make, summer: Path, tmp_path: Path
) -> None:
    figs = write_photos(tmp_path / "figs", ("fig",), each=5)
    half().learn(resume=True, report=False, quiet=True)  # version 3, on 1
    killed(half(), figs, "run")
    half().undo(to=1)
    half().learn(figs, effort="instant", discard=True, report=False, quiet=True)
    assert_figs_on_spring(half())


def test_a_plan_after_a_kill_is_of_the_learn_that_would_go_on(half: Make, summer: Path) -> None:
    plan = half().plan(summer)
    assert (plan.new_classes, plan.known_classes) == (["date", "elm"], ["ash"])


def test_choices_of_a_first_learn_are_dropped_with_it(make: Make, spring: Path) -> None:
    killed(make(image_size=16), spring, "run")
    other = make()  # at the size of the backbone
    with pytest.raises(UserError, match="unfinished session"):
        other.learn(spring, effort="instant", report=False, quiet=True)
    other.learn(spring, effort="instant", discard=True, report=False, quiet=True)
    assert other.store.header()["backbone"]["image_size"] == 32


def test_to_resume_a_finished_learn_says_that_it_is_finished(
    make: Make, spring: Path, summer: Path
) -> None:
    with pytest.raises(UserError, match="no unfinished session"):
        make().learn(resume=True)
    assert not make().learn(spring, report=False, quiet=True).finished_before
    for photos in (None, spring):
        again = make().learn(photos, resume=True)
        assert (again.version, again.finished_before) == (2, True)
        assert again.text().startswith(
            "This session is finished already.\nVersion 2: learned spring"
        )
        assert again.to_dict()["finished_before"]
    with pytest.raises(UserError, match=r"its last one, of spring, is finished"):
        make().learn(summer, resume=True)
    assert make().store.current() == 2


def test_a_changed_record_is_refused_or_reads_the_same(make: Make, spring: Path) -> None:
    killed(make(), spring, "run")
    store, refused = make().store, 0
    path, expected = store.learning / "session.json", find(store)
    assert isinstance(expected, LearnSession)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            assert find(store) == expected
        except UserError:
            refused += 1
    assert refused > 0.95 * len(content)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"session\.json is damaged .* --discard"):
        find(store)


def test_a_request_to_stop_is_told_how_to_go_on(
    make: Make, spring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Optimization.step

    def stop(self: Optimization, *arguments: object) -> float:
        os.kill(os.getpid(), signal.SIGINT)
        return inner(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Optimization, "step", stop)
    with pytest.raises(UserError, match=r"hashprompt learn .*trees --resume"):
        make().learn(spring, report=False, quiet=True)


@pytest.mark.slow
def test_twenty_kills_at_random_moments(
    make: Make, spring: Path, summer: Path, undisturbed: ContinualClassifier, tmp_path: Path
) -> None:
    rng = random.Random(0)
    make(checkpoint_minutes=0).learn(spring, report=False, quiet=True)
    started = time.monotonic()
    make("clock", checkpoint_minutes=0).learn(spring, report=False, quiet=True)
    whole = time.monotonic() - started
    kills, finished, found = 0, 0, set()
    opened_learning = make().store.learning
    while kills < 20:
        pid = os.fork()
        if not pid:
            code = 1
            reading_threads.cache_clear()  # its threads are not in this copy of the process
            try:
                make(checkpoint_minutes=0).learn(summer, report=False, quiet=True)
                code = 0
            finally:
                os._exit(code)
        time.sleep(rng.uniform(0, 1.2 * whole))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        kills += os.WIFSIGNALED(status)
        states = [p.name for p in opened_learning.glob("checkpoints/state-*.json")]
        found.add(max(states, default=""))
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        opened = make(checkpoint_minutes=0)
        assert len(opened.predict(spring / "ash" / "0-0.png").probabilities) in (3, 5)
        if opened.store.current() > 2 and not opened.store.version().info["frozen_fit"]:
            finished += 1
            assert_same(opened, undisturbed)
            opened.undo()
            # The next one starts from the beginning, with another number.
    last = make(checkpoint_minutes=0)
    last.learn(summer, report=False, quiet=True)
    assert_same(last, undisturbed)
    assert finished  # kills and resumes do get somewhere
    assert len(found) >= 3  # not all at one moment
