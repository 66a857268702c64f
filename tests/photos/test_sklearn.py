"""scikit-learn's manners, without its base classes."""

from typing import Any

import numpy as np
import pytest
from pictures import QUICK, stripes
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from hashprompt import ContinualClassifier, UserError


@pytest.fixture
def images() -> tuple[np.ndarray, np.ndarray]:
    """Stripes of two directions, twelve images each."""
    rng = np.random.default_rng(0)
    return np.concatenate([stripes(c, 12, rng) for c in (0, 3)]), np.array(
        ["flat"] * 12 + ["steep"] * 12
    )


def estimator(**options: Any) -> ContinualClassifier:
    return ContinualClassifier(backbone="nano", **{**QUICK, **options})


def test_it_is_a_classifier() -> None:
    assert is_classifier(estimator())
    assert estimator()._estimator_type == "classifier"  # what versions before 1.6 look at
    tags = estimator().__sklearn_tags__()
    assert tags.target_tags.required
    assert tags.classifier_tags is not None


def test_a_clone_has_the_same_params_and_has_learned_nothing(
    images: tuple[np.ndarray, np.ndarray],
) -> None:
    fitted = estimator(seed=7).fit(*images)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert copy.get_params()["seed"] == 7
    assert copy.get_params()["epochs"] == QUICK["epochs"]
    assert len(copy.classes_) == 0
    with pytest.raises(UserError, match="learned nothing yet"):
        copy.predict(images[0])


def test_set_params_changes_options_and_arguments(images: tuple[np.ndarray, np.ndarray]) -> None:
    changed = estimator().fit(*images)
    assert changed.set_params(epochs=3, seed=2) is changed
    assert (changed.get_params()["epochs"], changed.seed) == (3, 2)
    assert len(changed.classes_) == 0  # what was learned with other params is not kept


def test_it_is_shown_with_what_differs_from_the_defaults() -> None:
    assert repr(ContinualClassifier()) == "ContinualClassifier()"
    shown = repr(ContinualClassifier(backbone="nano", seed=3, epochs=2))
    assert shown == "ContinualClassifier(backbone='nano', seed=3, epochs=2)"


def test_fit_starts_anew(images: tuple[np.ndarray, np.ndarray]) -> None:
    twice = estimator().fit(*images)
    assert twice.fit(images[0], np.where(images[1] == "flat", 4, 9)).classes_.tolist() == [4, 9]


@pytest.mark.parametrize(("scoring", "least"), [(None, 0.8), ("neg_log_loss", -0.6)])
def test_cross_validation_works(
    images: tuple[np.ndarray, np.ndarray], scoring: str | None, least: float
) -> None:
    scores = cross_val_score(estimator(), *images, cv=2, scoring=scoring, error_score="raise")
    assert (scores > least).all()


def test_a_grid_search_tries_options(images: tuple[np.ndarray, np.ndarray]) -> None:
    search = GridSearchCV(estimator(), {"epochs": [1, 2]}, cv=2, error_score="raise")
    search.fit(*images)
    assert search.best_params_["epochs"] in (1, 2)
    assert search.best_estimator_.get_params()["epochs"] == search.best_params_["epochs"]
    assert search.predict(images[0][:1]).tolist() == ["flat"]


def test_it_stands_at_the_end_of_a_pipeline(images: tuple[np.ndarray, np.ndarray]) -> None:
    pipeline = make_pipeline("passthrough", estimator())
    assert is_classifier(pipeline)
    assert pipeline.fit(*images).score(*images) > 0.8
