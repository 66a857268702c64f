"""The base of the schemas of JSON files, and the types of values they share."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from hashprompt.errors import shortened

MAX_TASKS = 10_000
MAX_DEPTH = 8  # of nested lists and objects in values without a schema


def _shallow(value: Any) -> Any:
    level = [value]
    for _ in range(MAX_DEPTH):
        parts = (v for v in level if isinstance(v, dict | list))
        level = [v for p in parts for v in (p.values() if isinstance(p, dict) else p)]
        if not level:
            return value
    raise ValueError(f"lists and objects are nested more than {MAX_DEPTH} deep")


class Schema(BaseModel):
    """Base of all: values are not converted and finite; later versions may add fields."""

    model_config = ConfigDict(
        strict=True, extra="allow", allow_inf_nan=False, frozen=True, defer_build=True
    )
    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_shallow)]] = Field(init=False)


def _rectangular(rows: list[list[Any]]) -> list[list[Any]]:
    if len({len(row) for row in rows}) > 1:
        raise ValueError("its rows differ in length")
    return rows


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Index = Annotated[int, Field(ge=0, lt=MAX_TASKS)]  # of a task
Seconds = Annotated[float, Field(ge=0)]
Percent = Annotated[float, Field(ge=0, le=100)]
Pair = Annotated[list[Count], Field(min_length=2, max_length=2)]
Values = Annotated[dict[str, Any], AfterValidator(_shallow)]  # options and the like
Usage = Annotated[list[list[Count]], AfterValidator(_rectangular)]
Accuracy = Annotated[
    list[Annotated[list[Percent | None], Field(min_length=1, max_length=MAX_TASKS)]],
    Field(max_length=MAX_TASKS),
]


def first_problem(error: ValidationError) -> str:
    """The first wrong field, e.g. `classes.3: Input should be a valid string`."""
    problem = error.errors(include_url=False, include_input=False)[0]
    field = shortened(".".join(map(str, problem["loc"])), 100)
    message = shortened(problem["msg"].removeprefix("Value error, "), 200)
    return f"`{field}`: {message}" if field else message
