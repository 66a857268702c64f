"""Clusters of similar photos that nobody has named, by their frozen features."""

import numpy as np

MIN_SIZE = 5  # photos that make a cluster
NEIGHBOURS = 3  # that a photo must be near to, to be in a cluster
DIRECTIONS = 32  # more of them add noise
MAX_SAMPLE = 4000  # photos that are clustered at once: their distances take 128 MB
CHUNK = 1024


class Clusters:
    """Clusters found by HDBSCAN in a sample of photos; others go where the most similar one is.

    The leaves of the tree of clusters are taken: a person can give two clusters one name, but would
    have to take apart a mixed one by hand.

    Args:
        sample: (n, D) features, n of at most `MAX_SAMPLE`.
    """

    def __init__(self, sample: np.ndarray) -> None:
        from sklearn.cluster import HDBSCAN  # only a sort needs it

        self._mean = sample.mean(0)
        directions = self._directed(sample)
        # Principal directions of the sample.
        axes = np.linalg.svd(directions - directions.mean(0), full_matrices=False)[2]
        self._axes = axes[:DIRECTIONS].T
        self._sample = directions @ self._axes
        labels = np.full(len(sample), -1)
        if len(sample) > MIN_SIZE:
            found = HDBSCAN(MIN_SIZE, NEIGHBOURS, cluster_selection_method="leaf", copy=True)
            labels = found.fit(self._sample).labels_
        self._labels = _largest_first(labels)

    def __len__(self) -> int:
        return int(self._labels.max(initial=-1)) + 1

    def of(self, features: np.ndarray) -> np.ndarray:
        """The cluster of each photo, (N,); -1 for those in none.

        Args:
            features: (N, D).
        """
        own = self._directed(features) @ self._axes
        squares = np.square(self._sample).sum(1)
        parts = [own[at : at + CHUNK] for at in range(0, len(own), CHUNK)]
        nearest = [(squares - 2 * part @ self._sample.T).argmin(1) for part in parts]
        return self._labels[np.concatenate([np.zeros(0, dtype=np.int64), *nearest])]

    def _directed(self, features: np.ndarray) -> np.ndarray:
        """Features from the mean of the sample, all of length 1."""
        centred = features.astype(np.float64) - self._mean
        return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)


def _largest_first(labels: np.ndarray) -> np.ndarray:
    """The same clusters (n,), numbered by their size."""
    sizes = np.bincount(labels[labels >= 0], minlength=labels.max(initial=-1) + 1)
    ranks = np.empty(len(sizes), dtype=np.int64)
    ranks[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return np.where(labels < 0, -1, ranks[labels] if len(sizes) else -1)
