"""Facts and options of every method."""

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from hashprompt.methods import kinds
from hashprompt.options import Options

Family = Literal[
    "prompts",
    "first-task adaptation",
    "adapters",
    "statistics",
    "drift compensation",
    "regularisation",
    "rehearsal",
    "references",
    "your own",
]


@dataclass(frozen=True)
class MethodInfo:
    """What a user should know before choosing a method.

    Args:
        paper: venue and arXiv number, DOI or OpenReview id, e.g. `CVPR 2022, arXiv 2112.08654`.
        code: the public code, as OWNER/NAME on GitHub.
        scenarios: streams it can learn: new classes, or the same classes in new domains.
        joint: trained on all tasks at once.
        keeps_images: of old tasks, unless its options store none.
    """

    title: str = ""
    summary: str = ""
    paper: str = ""
    code: str = ""
    scenarios: tuple[str, ...] = ("class", "domain")
    joint: bool = False
    batch_invariant: bool = True
    family: Family = "your own"
    keeps_images: bool = False

    @property
    def paper_url(self) -> str:
        """Address of the paper, if it has an identifier."""
        sites = {
            r"arXiv (\S+)": "https://arxiv.org/abs/",
            r"DOI (\S+)": "https://doi.org/",
            r"OpenReview (\S+)": "https://openreview.net/forum?id=",
        }
        found = ((re.search(pattern, self.paper), site) for pattern, site in sites.items())
        return next((site + match[1] for match, site in found if match), "")

    @property
    def code_url(self) -> str:
        """Address of the public code, if there is any."""
        return self.code and f"https://github.com/{self.code}"


class MethodConfig(Options):
    """Options of every method.

    Frames set `info` to what their methods have in common; `register` completes it. The
    descriptions below are those of all methods that have an option of the name.

    Args:
        batch_size: images per step
        epochs: epochs on each task
        schedule: learning-rate schedule; `step` divides by ten every 30 epochs, `coda` is a cosine
            that is almost zero in the last epoch
        optimizer: optimizer; sgd has momentum 0.9
        scale_lr: multiply learning rates by batch_size/256
        clip: maximum gradient norm
        weight_decay: weight decay of all trained parameters
        trainable: trained weights of the ViT; `biases` includes norms and the class token, `head`
            trains none
        layers: prompted blocks, counted from 1; null: all
        prompt_length: length of a prompt: keys (and values) per block
        align_samples: pseudo-features of each class per epoch
        statistics: stored statistics of each class next to its mean
        shrinkage: shrinkage of each class covariance towards the mean covariance
        ridge: ridge of a covariance, as a share of its mean diagonal
        legacy_kv_layout: each image gets prefixes of other images of its batch, as in public code
        batchwise_prompt: all images of a batch get the prompts that most of them chose
    """

    info: ClassVar[MethodInfo] = MethodInfo()
    batch_size: kinds.BatchSize = 128

    def keeps_images(self) -> str:
        """How many images of old tasks are kept, e.g. `50 per class`; empty if none are."""
        return ""
