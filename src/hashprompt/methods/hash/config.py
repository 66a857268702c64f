"""Options of Hash."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hashprompt.methods.frames.configs.hide_pipeline import PromptConfig
from hashprompt.methods.registry import register
from hashprompt.parts.variants import Modulation, Penalty, RouterInit, RouterReads


@register(
    "hash",
    title="Hash",
    summary="shared prompt pool, one router per task, history-aware modulation",
    family="prompts",
)
class HashConfig(PromptConfig):
    """Options of Hash; the defaults are the recommended reading of the paper."""

    main = (
        "batch_size",
        "epochs",
        "lr",
        "layers",
        "experts",
        "prompt_length",
        "top_k",
        "delta",
        "alpha",
        "drift",
    )
    first_lr_scale: float = Field(
        1.0,
        gt=0,
        description="rate of the first task, in which nothing can be forgotten yet, over lr",
    )
    lr_decay: float = Field(
        0.0,
        ge=0,
        description="the rate of the t-th task is divided by t to this power: with 1 the pool is "
        "about as much moved by every task, however many there will be",
    )
    layers: tuple[int, ...] | None = Field(
        (1, 2, 3, 4), description="prompted blocks, 1 is the first; null: all"
    )
    experts: int = Field(15, ge=1, le=100_000, description="N_r, prompts in the pool")
    prompt_length: int = Field(15, ge=1, le=10_000, description="L_p, length of a prompt")
    len_mode: Literal["per_half", "total"] = Field(
        "per_half", description="L_p keys and L_p values, or L_p in total for both"
    )
    top_k: int = Field(2, ge=1, le=10_000, description="k, experts mixed per image")
    mixing: Literal["softmax", "uniform"] = Field("softmax", description="weights α of the chosen")
    router_scope: Literal["global", "layer"] = Field(
        "global", description="one routing decision per image, or one per prompted block"
    )
    router_init: RouterInit = Field("uniform", description="a fresh router: U(±1), U(±1/√d), …")
    router_next: Literal["copy", "fresh", "same"] = Field(
        "copy",
        description="the router of a new task starts as a copy of the last one, or fresh; or the "
        "same router goes on learning and serves all tasks",
    )
    router_input: RouterReads = Field(
        "raw",
        description="what the router reads: the mean token as it is, centred and scaled by the "
        "first task's images, or with a norm of its own; or the centred plain feature",
    )
    mixing_temperature: float = Field(1.0, gt=0, description="of the softmax that mixes experts")
    even_use: float = Field(0.0, ge=0, description="weight of a loss that asks for even use")
    hdr: bool = Field(True, description="history-aware dynamic routing: the penalty")
    penalty: Penalty = Field("stepwise", description="ψ, form of the routing penalty")
    delta: float = Field(0.4, ge=0, description="δ, size of the routing penalty")
    delta_unit: Literal["score", "spread"] = Field(
        "score", description="δ as it is, or times the spread of an image's scores over experts"
    )
    penalty_on: Literal["score", "select"] = Field(
        "score", description="the penalty enters choice and weights, or the choice alone"
    )
    infer_penalty: Literal["task", "none", "current"] = Field(
        "task", description="penalty at test: the one the task was trained with, none, today's"
    )
    hgm: bool = Field(True, description="history-aware gradient modulation: smaller updates")
    modulation: Modulation = Field("piecewise", description="γ, form of the update factor")
    alpha: float = Field(0.1, gt=0, le=1, description="α, update factor of protected experts")
    beta: float = Field(1.0, gt=0, description="β of the smooth update factors")
    hgm_mode: Literal["update", "grad", "sgd"] = Field(
        "update",
        description="scale the optimiser's update; or the gradient (Adam undoes it); or the "
        "gradient with plain SGD",
    )
    protected: int = Field(
        2, ge=1, le=100_000, description="k_A, size of A_t, the most used experts"
    )
    history: Literal["task", "step"] = Field(
        "task", description="A_t fixed while a task is trained, or live"
    )
    history_scale: Literal["normalised", "raw"] = Field(
        "normalised", description="counts with mean 1, or as they are, in smooth ψ and γ"
    )
    drift: Literal["ignore", "shift", "affine"] = Field(
        "ignore",
        description="whether Gaussians of old classes follow the features as the pool moves: by "
        "the shift, or the affine map, that images of the new task show",
    )
    drift_ridge: float = Field(1.0, gt=0, description="damping of the affine map")
    drift_ridge_by: Literal["given", "classes"] = Field(
        "given",
        description="damping as given; or chosen for every task by leaving out classes of it in "
        "turn, since the map is used on other classes than those it was fitted to",
    )
    drift_views: int = Field(
        0,
        ge=0,
        le=100,
        description="mixtures of each new image with others that also tell how features moved: old "
        "classes look like none of the new images; two passes each for every old router",
    )
    deploy: Annotated[float, Field(gt=0, le=1)] | Literal["average"] = Field(
        1.0,
        description="how far the pool in use follows the pool in training after each task; below "
        "1 the trained pool is kept beside it. average: to the mean of the pools that the tasks "
        "left, each with the weight of its classes",
    )
    distil: float = Field(
        0.0,
        ge=0,
        description="weight of keeping features of the new images under a random old router where "
        "they were before the task; costs a trained pass and another one",
    )
    fewest_classes: int = Field(
        1,
        ge=1,
        description="a task after the first that brings fewer classes leaves pool and routers as "
        "they are: it would cost old classes more than it brings",
    )
    base: Literal["plain", "first"] = Field(
        "plain",
        description="features that no later task changes, which infer the task and vote: of the "
        "ViT as it is, or with the prompts as the first task left them, which are kept",
    )
    mask_inactive: bool = Field(
        False, description="experts that no image of the batch chose do not move at all"
    )

    @property
    def damped(self) -> bool:
        """Whether the pool in use is another one than that in training."""
        return self.deploy == "average" or self.deploy < 1

    @model_validator(mode="after")
    def _fits(self) -> "HashConfig":
        if self.top_k > self.experts or self.protected > self.experts:
            raise ValueError(
                f"top_k={self.top_k} and protected={self.protected} must not exceed "
                f"experts={self.experts}"
            )
        if self.len_mode == "total" and self.prompt_length < 2:
            raise ValueError("len_mode=total halves the prompt: prompt_length must be at least 2")
        # A router of one expert has nothing to decide.
        if self.router_next == "same" and (self.hdr or (self.damped and self.experts > 1)):
            raise ValueError(
                "router_next=same goes without hdr, whose penalties are of single tasks, and "
                "without deploy, which leaves routers where they were trained (but for experts=1)"
            )
        if self.fewest_classes > 1 and self.router_next == "fresh":
            raise ValueError(
                "fewest_classes leaves routers untrained, so they must not start anew: use "
                "router_next=copy or same"
            )
        if self.base == "first" and (self.tii == "sgd" or self.hdr):
            raise ValueError(
                "base=first needs tii=discriminant, since a network would be trained before the "
                "prompts, and goes without hdr, whose penalties change from task to task"
            )
        if self.router_scope == "layer" and self.router_input in ("centred", "plain"):
            raise ValueError(
                f"router_input={self.router_input} goes with one decision per image "
                "(router_scope=global); use normed or raw with router_scope=layer"
            )
        return self
