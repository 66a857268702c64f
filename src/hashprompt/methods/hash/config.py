"""Options of Hash."""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import ChosenExperts, PromptConfig

RouterInit = Literal["uniform", "linear", "orthogonal"]


@register("hash", paper="CVPR 2026, arXiv 2601.20894")
class HashConfig(ChosenExperts, PromptConfig):
    """Hash: shared prompt pool, one router per task, history-aware modulation.

    The defaults are the recommended reading of the paper.

    Args:
        experts: N_r, prompts in the pool
        prompt_length: L_p, length of a prompt
        top_k: k, experts mixed per image
        len_mode: L_p keys and L_p values, or L_p in total for both
        mixing: weights α of the chosen experts: softmax of their scores, or uniform
        router_scope: one routing decision per image, or one per prompted block
        router_init: initial values of a new router: U(±1), U(±1/√d), orthogonal
        router_next: the router of a new task starts as a copy of the last one, or fresh
        hdr: history-aware dynamic routing: the penalty
        penalty: ψ, form of the routing penalty
        delta: δ, size of the routing penalty
        penalty_exponent: exponent of the polynomial penalty
        penalty_on: the penalty enters choice and weights, or the choice only
        infer_penalty: penalty at test: that of the task's training, none, or the current one
        hgm: history-aware gradient modulation: smaller updates
        modulation: γ, form of the update factor
        alpha: α, update factor of most-used experts
        hgm_mode: scale the optimiser's update; or the gradient (no effect with Adam); or the
            gradient with plain SGD
        protected: k_A, size of A_t, the most-used experts
        history: A_t fixed while a task is trained, or updated in every step
        history_scale: smooth ψ and γ use counts of mean 1, and ψ a factor δ; or raw counts and
            no δ, as printed
        mask_inactive: freeze experts that no image of a batch chose; else Adam's momentum
            moves them
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
    layers: kinds.Layers = (1, 2, 3, 4)
    experts: kinds.Count = 15
    prompt_length: kinds.PromptLength = 15
    top_k: kinds.Count = 2
    len_mode: Literal["per_half", "total"] = "per_half"
    mixing: Literal["softmax", "uniform"] = "softmax"
    router_scope: Literal["global", "layer"] = "global"
    router_init: RouterInit = "uniform"
    router_next: Literal["copy", "fresh"] = "copy"
    hdr: bool = True
    penalty: Literal["stepwise", "logarithmic", "polynomial"] = "stepwise"
    delta: kinds.NonNegative = 0.4
    penalty_exponent: kinds.Positive = 1.5
    penalty_on: Literal["score", "select"] = "score"
    infer_penalty: Literal["task", "none", "current"] = "task"
    hgm: bool = True
    modulation: Literal["piecewise", "inverse", "exponential"] = "piecewise"
    alpha: kinds.PositiveShare = 0.1
    hgm_mode: Literal["update", "grad", "sgd"] = "update"
    protected: kinds.Count = 2
    history: Literal["task", "step"] = "task"
    history_scale: Literal["normalised", "printed"] = "normalised"
    mask_inactive: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.protected > self.experts:
            raise ValueError(f"protected={self.protected} must not exceed experts={self.experts}")
        if self.len_mode == "total" and self.prompt_length < 2:
            raise ValueError("len_mode=total halves the prompt: prompt_length must be at least 2")
        return self
