"""What every section of the configuration is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


def inconsistent(key: str, problem: str) -> PydanticCustomError:
    """Return the error of settings that do not fit together, placed at one of them."""
    return PydanticCustomError("inconsistent", "{problem}", {"key": key, "problem": problem})


class Section(BaseModel):
    """A part of the configuration: frozen, and strict about keys and types."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
