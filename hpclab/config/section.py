"""What every section of the configuration is made of."""

from __future__ import annotations

import os
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


_NO_LINE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def is_one_line(text: str) -> bool:
    """Whether a script, a command, a path or a config file can hold a text as it is."""
    return text != "" and _NO_LINE.search(text) is None


def _one_line(value: str) -> str:
    if not is_one_line(value):
        raise ValueError("must be one line of text, not empty; leave it out for none")
    return value


def _anywhere(value: str) -> str:
    return os.path.abspath(os.path.expanduser(_one_line(value)))  # noqa: PTH100, PTH111  # pathlib keeps `..`


Line = Annotated[str, AfterValidator(_one_line)]
"""Text that a script, a command or a path can hold."""
FilePath = Annotated[str, AfterValidator(_anywhere)]
"""A path, absolute from then on: a run goes on, and is exported, in other working folders."""


def inconsistent(key: str, problem: str) -> PydanticCustomError:
    """Return the error of settings that do not fit together, placed at one of them."""
    return PydanticCustomError("inconsistent", "{problem}", {"key": key, "problem": problem})


class Section(BaseModel):
    """A part of the configuration: frozen, and strict about keys and types."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
