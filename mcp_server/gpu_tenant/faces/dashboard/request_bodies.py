"""The form of the bodies of the page's requests: short, and without unknown fields."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from gpu_tenant.domain.errors import BadRequest

Text = Annotated[str, Field(max_length=400)]
Patterns = Annotated[tuple[Text, ...], Field(max_length=100)]


class Body(BaseModel):
    """The body of one request."""

    model_config = ConfigDict(extra="forbid")


B = TypeVar("B", bound=Body)


async def body_of(request: Request, shape: type[B]) -> B:
    """Read the request's body.

    Raises:
        BadRequest: it does not have that form; the error does not repeat the body.
    """
    try:
        return shape.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise BadRequest(
            f"{where}: {first['msg'].lower()}", remedy="mend it and try again"
        ) from None
