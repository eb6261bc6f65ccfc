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


# Names go into comments of YAML files and scripts, which a control character (Unicode category Cc)
# or a line or paragraph separator would end.
_PLAIN_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_PLAIN_LINE)]
PositiveInt = Annotated[int, Field(gt=0, lt=2**53)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**53)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
