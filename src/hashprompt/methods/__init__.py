"""One file per method: its options, its state, its phases, its prediction."""

from hashprompt.methods import finetune, gaussian_head, hash, joint
from hashprompt.methods.base import METHODS, Method, MethodInfo, Phase, Prediction, register

__all__ = [
    "METHODS",
    "Method",
    "MethodInfo",
    "Phase",
    "Prediction",
    "finetune",
    "gaussian_head",
    "hash",
    "joint",
    "register",
]
