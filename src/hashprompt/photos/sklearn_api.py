"""scikit-learn's interface of a classifier, without its base classes: importing them is slow."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from hashprompt.errors import UserError
from hashprompt.photos.answers import Answer
from hashprompt.photos.store.store import Store


def sorted_labels(info: Mapping[str, Any]) -> list[Any]:
    """The labels of a version, given its `version.json`."""
    names: list[str] = info["classes"]
    return sorted(map(int, names)) if info["integer_labels"] else sorted(names)


class SklearnInterface:
    """`fit`, `partial_fit`, `score`, parameters and tags, on top of `learn` and answers."""

    _estimator_type = "classifier"  # for scikit-learn before 1.6
    folder: str | Path | None
    backbone: str | None
    seed: int
    options: Mapping[str, Any]
    store: Store
    learn: Callable[..., Any]

    def _every_answer(self, what: Any, version: int | None = None) -> list[Answer]:
        """One for each picture; one that cannot be read is an error."""
        raise NotImplementedError

    @property
    def classes_(self) -> np.ndarray:
        """Labels in sorted order: the columns of `predict_proba`."""
        if self.store.is_new:
            return np.array([], dtype=str)
        return np.array(sorted_labels(self.store.version().info))

    def partial_fit(self, X: Any, y: Sequence[Any], classes: Any = None) -> Self:
        """Learn images X with labels y, on top of the known classes."""
        self.learn(X, labels=y, report=False, quiet=True)
        return self

    def fit(self, X: Any, y: Sequence[Any]) -> Self:
        """Learn from nothing, as scikit-learn's loops expect."""
        if not self.store.is_new:
            if self.folder is not None:
                raise UserError(
                    f"fit starts from nothing, but {self.folder} has learned already. Use learn or "
                    "partial_fit, or an empty folder."
                )
            self.__init__(**self.get_params())  # type: ignore[misc]
        return self.partial_fit(X, y)

    def score(self, X: Any, y: Sequence[Any], sample_weight: Any = None) -> float:
        """Accuracy."""
        pairs = zip(self._every_answer(X), y, strict=True)
        right = [str(answer.label) == str(label) for answer, label in pairs]
        return float(np.average(right, weights=sample_weight))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        fixed = {name: getattr(self, name) for name in ("folder", "backbone", "seed")}
        return {**fixed, **self.options}

    def set_params(self, **params: Any) -> Self:
        self.__init__(**{**self.get_params(), **params})  # type: ignore[misc]
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, Tags, TargetTags  # from scikit-learn 1.6 on

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return not self.store.is_new

    def __repr__(self) -> str:
        defaults = {"folder": None, "backbone": None, "seed": 0}
        params = self.get_params().items()
        shown = (f"{k}={v!r}" for k, v in params if k not in defaults or v != defaults[k])
        return f"{type(self).__name__}({', '.join(shown)})"
