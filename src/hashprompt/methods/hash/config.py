"""Options of Hash."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from hashprompt.methods.config import Count, Layers, PromptLength, TopK
from hashprompt.methods.frames.options import PromptConfig
from hashprompt.methods.registry import register

Modulation = Literal["piecewise", "inverse", "exponential"]
Penalty = Literal["stepwise", "logarithmic", "polynomial"]
RouterInit = Literal["uniform", "linear", "orthogonal"]


@register("hash", paper="CVPR 2026, arXiv 2601.20894")
class HashConfig(PromptConfig):
    """Hash: shared prompt pool, one router per task, history-aware modulation.

    The defaults are the recommended reading of the paper.
    """

    main = (
        *("batch_size", "epochs", "lr", "layers", "experts"),
        *("prompt_length", "top_k", "delta", "alpha", "contrastive"),
    )
    readings: ClassVar[tuple[str, ...]] = (
        *("len_mode", "mixing", "router_scope", "router_init", "router_next", "penalty_on"),
        *("infer_penalty", "penalty_exponent", "hgm_mode", "protected", "history"),
        *("history_scale", "mask_inactive", "contrastive_form", "tii_target"),
    )
    layers: Layers = (1, 2, 3, 4)
    experts: Count = Field(15, description="N_r, prompts in the pool")
    prompt_length: PromptLength = Field(15, description="L_p, length of a prompt")
    top_k: TopK = Field(2, description="k, experts mixed per image")
    len_mode: Literal["per_half", "total"] = Field(
        "per_half", description="L_p keys and L_p values, or L_p in total for both"
    )
    mixing: Literal["softmax", "uniform"] = Field("softmax", description="weights α of the chosen")
    router_scope: Literal["global", "layer"] = Field(
        "global", description="one routing decision per image, or one per prompted block"
    )
    router_init: RouterInit = Field("uniform", description="a fresh router: U(±1), U(±1/√d), …")
    router_next: Literal["copy", "fresh"] = Field(
        "copy", description="the router of a new task starts as a copy of the last one, or fresh"
    )
    hdr: bool = Field(True, description="history-aware dynamic routing: the penalty")
    penalty: Penalty = Field("stepwise", description="ψ, form of the routing penalty")
    delta: float = Field(0.4, ge=0, description="δ, size of the routing penalty")
    penalty_exponent: float = Field(1.5, gt=0, description="of the polynomial penalty")
    penalty_on: Literal["score", "select"] = Field(
        "score", description="the penalty enters choice and weights, or the choice only"
    )
    infer_penalty: Literal["task", "none", "current"] = Field(
        "task", description="penalty at test: the one the task was trained with, none, today's"
    )
    hgm: bool = Field(True, description="history-aware gradient modulation: smaller updates")
    modulation: Modulation = Field("piecewise", description="γ, form of the update factor")
    alpha: float = Field(0.1, gt=0, le=1, description="α, update factor of most-used experts")
    hgm_mode: Literal["update", "grad", "sgd"] = Field(
        "update",
        description="scale the update of the optimiser; or the gradient (Adam undoes it); or the "
        "gradient with plain SGD",
    )
    protected: Count = Field(2, description="k_A, size of A_t, the most-used experts")
    history: Literal["task", "step"] = Field(
        "task", description="A_t fixed while a task is trained, or live"
    )
    history_scale: Literal["normalised", "raw"] = Field(
        "normalised", description="counts with mean 1, or as they are, in smooth ψ and γ"
    )
    mask_inactive: bool = Field(
        False,
        description="experts that no image of a batch chose do not move; else the momentum of "
        "Adam moves them",
    )

    @model_validator(mode="after")
    def _fits(self) -> "HashConfig":
        if self.top_k > self.experts or self.protected > self.experts:
            raise ValueError(
                f"top_k={self.top_k} and protected={self.protected} must not exceed "
                f"experts={self.experts}"
            )
        if self.len_mode == "total" and self.prompt_length < 2:
            raise ValueError("len_mode=total halves the prompt: prompt_length must be at least 2")
        return self
