"""What comes before a learn: the data set, the config, the plan, the job on disk."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hashprompt.errors import UserError
from hashprompt.photos.defaults import (
    LearnPlan,
    choose_backbone,
    choose_image_size,
    choose_training,
    estimate_seconds,
    seconds_per_image,
)
from hashprompt.photos.evaluation import TEST, photo_records
from hashprompt.photos.inputs.names import shorten
from hashprompt.photos.inputs.photo_dataset import PhotoDataset, build_dataset
from hashprompt.photos.learn_job import (
    Effort,
    LearnJob,
    LearnRequest,
    absolute_path,
    job_fingerprint,
)
from hashprompt.photos.store.config import ClassifierConfig, reading_size
from hashprompt.photos.store.store import Store, Version


class LearnPlanner:
    """Prepares learns of the classifier in a store.

    Args:
        store: of the classifier.
        backbone, seed, options: as the user gave them; what a first learn has fixed wins.
    """

    def __init__(
        self,
        store: Store,
        backbone: str | None,
        seed: int,
        options: Mapping[str, Any],
    ) -> None:
        self.store, self.backbone, self.seed = store, backbone, seed
        self.options = options
        self._config: ClassifierConfig | None = None

    def config(self) -> ClassifierConfig:
        """Of the classifier as it is stored, loaded once."""
        if self._config is None:
            self._config = self._stored(self.store.header())
        return self._config

    def _stored(self, header: dict[str, Any]) -> ClassifierConfig:
        return ClassifierConfig.stored(self.store.folder, header, self.backbone, self.options)

    def unfinished(self) -> LearnJob | None:
        """The learn that was interrupted."""
        job = LearnJob.read(self.store.learning)
        if job and self.store.is_new:  # the choices of the first learn are made already
            self._config = self._stored(job.header)
        return job

    def is_done(self, job: LearnJob) -> bool:
        """Whether a learn was killed between its commit and clearing up."""
        return not self.store.is_new and job.is_done(self.store.version().info)

    def dropped(self) -> LearnJob | None:
        """The learn that was interrupted and shall be dropped, with the choices it made."""
        if self.store.is_new:
            self._config = None
        try:
            job = LearnJob.read(self.store.learning)
        except UserError:  # a damaged one is dropped too
            return None
        return None if job is None or self.is_done(job) else job

    def base(
        self, request: LearnRequest, unfinished: LearnJob | None, dropped: LearnJob | None = None
    ) -> Version | None:
        """The version to learn from: never the first look of a learn that is not finished."""
        if request.forgets is not None:
            return None
        current = None if self.store.is_new else self.store.version()
        job = unfinished or dropped
        if current is None or job is None:
            return current
        if unfinished or job.is_looked_at(current.info):
            return None if job.before is None else self.store.version(job.before)
        return current

    def prepare(
        self, request: LearnRequest, base: Version | None
    ) -> tuple[PhotoDataset, ClassifierConfig]:
        """Everything that can fail on bad input, before anything is written."""
        if self._config is not None or not self.store.is_new:
            config = self.config()
            return self._dataset(request, base, config.short_side), config
        from hashprompt.backbone.weights import load_backbone  # imports timm

        image_size = self.options.get("image_size")
        loaded = load_backbone(self.backbone or choose_backbone(), image_size)
        dataset = self._dataset(request, base, reading_size(loaded))
        if image_size is None:
            native = loaded.preprocessing.image_size
            patch = loaded.model.vit.patch_embed.patch_size[0]
            short_sides = [min(size) for size in dataset.images.sizes()]
            chosen = choose_image_size(native, patch, short_sides)
            if chosen != native:
                loaded = load_backbone(loaded.name, chosen)
        return dataset, ClassifierConfig.new(loaded, self.options, self.seed)

    def _dataset(
        self, request: LearnRequest, base: Version | None, short_side: int
    ) -> PhotoDataset:
        known = base.info["classes"] if base else []
        seen = self.store.photos(base) if base else {}
        if request.forgets is not None:  # names mean what they meant, though all starts anew
            known = self.store.version().info["classes"]
        dataset = build_dataset(
            request.photos,
            request.labels,
            test=request.test,
            known=known,
            rename=request.rename,
            seen=seen,
            unreadable=request.unreadable,
            short_side=short_side,
            without=request.forgets,
        )
        if request.forgets is not None:
            trained = zip(dataset.labels, dataset.parts, strict=True)
            kept = {request.forgets, *(label for label, part in trained if part != TEST)}
            if lost := [name for name in known if name not in kept]:
                raise UserError(
                    f"{dataset.name} has no training photos of {len(lost)} other classes "
                    f"({shorten(lost)}), which would be forgotten too, since all is learned from "
                    "nothing. Add photos of them, or forget them first."
                )
        return dataset

    def plan(
        self,
        dataset: PhotoDataset,
        config: ClassifierConfig,
        effort: Effort,
        base: Version | None,
    ) -> LearnPlan:
        """What a learn of these photos would do, with the seconds it would take."""
        training = self._training(dataset, effort)
        known: list[str] = base.info["classes"] if base else []
        records = photo_records(self.store, base).values()
        earlier = sum(record.can_be_tested for record in records)  # they are asked again
        photos = dict(sorted(Counter(dataset.labels).items()))
        held_out = dataset.parts.count(TEST)
        each = seconds_per_image(config.backbone, config.device)
        count = len(dataset.labels) - held_out
        compensates = base is not None and config.options["drift"] != "none"
        followed = 1 + config.options["drift_views"] if compensates else 0
        return LearnPlan(
            dataset.name,
            [c for c in photos if c not in known],
            [c for c in photos if c in known],
            photos,
            count,
            held_out,
            config.backbone.name,
            config.backbone.preprocessing.image_size,
            training["epochs"],
            training["batch_size"],
            estimate_seconds(each, count, held_out, earlier, training["epochs"], followed),
            list(dataset.notes),
        )

    def _training(self, dataset: PhotoDataset, effort: Effort) -> dict[str, Any]:
        chosen = choose_training(dataset.parts.count("train"), effort)
        options = {} if effort == "instant" else self.options
        return {k: options.get(k, v) for k, v in chosen.items()}

    def begin(
        self,
        unfinished: LearnJob | None,
        dataset: PhotoDataset,
        config: ClassifierConfig,
        request: LearnRequest,
        base: Version | None,
    ) -> LearnJob:
        """The unfinished learn if it is this one, else a new one, written to disk."""
        parent = base.number if base else None
        fingerprint = job_fingerprint(dataset, parent, request)
        folder = self.store.folder
        self._config = config
        if unfinished is not None:
            if unfinished.fingerprint == fingerprint:
                return unfinished
            source = unfinished.source or "photos from memory"
            raise UserError(
                f"An unfinished learn of {source} is in {folder}, and these photos or settings are "
                f"not the same. Finish it first (resume=True, `hashprompt learn {folder} "
                "--resume`) or drop it (discard=True, `--discard`)."
            )
        job = LearnJob(
            parent,
            request.source,
            absolute_path(request.test),
            request.effort,
            dict(request.rename or {}),
            request.unreadable,
            config.header(),
            self._training(dataset, request.effort),
            fingerprint,
            request.forgets,
            None if request.forgets is None else self.store.current(),
        )
        self.store.drop_learning()
        job.write(self.store.learning)
        return job
