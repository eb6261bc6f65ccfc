"""The common base of all schema types: strict, frozen, no extra fields, no NaN."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Schema(BaseModel):
    """A validated, immutable record. Unknown fields and implicit conversions are refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


Name = Annotated[str, Field(min_length=1, max_length=200)]
PositiveInt = Annotated[int, Field(gt=0, lt=2**53)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**53)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
