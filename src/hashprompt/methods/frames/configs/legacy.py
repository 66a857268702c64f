"""Switches for two leaks of the public code (`parts/legacy.py`), off unless they are asked for."""

from typing import Annotated

from pydantic import Field

SWITCHES = ("legacy_kv_layout", "batchwise_prompt")

LegacyLayout = Annotated[
    bool,
    Field(
        description="give images the prefixes of their neighbours, as the public code does",
    ),
]
LegacyBatchwise = Annotated[
    bool, Field(description="all images of a batch get the prompts that most of them chose")
]
