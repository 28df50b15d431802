"""Which HTTP status stands for which error: the service writes them, its clients read them."""

from __future__ import annotations

from zeus.errors import AlreadyDone, InputError, NotAllowed, NotKnown

ERRORS: dict[int, type[InputError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotKnown,
    409: AlreadyDone,
}
OTHER = 422  # any other InputError


def status_of(error: InputError) -> int:
    """The status of an answer about this error.

    >>> status_of(NotKnown("no such job")), status_of(InputError("eta=2")), status_of(NotAllowed("read only"))
    (404, 422, 403)
    """
    return {kind: status for status, kind in ERRORS.items()}.get(type(error), OTHER)


def error_of(status: int) -> type[InputError]:
    """The error that an answer of this status stands for.

    >>> error_of(404).__name__, error_of(401).__name__, error_of(400).__name__
    ('NotKnown', 'NotAllowed', 'InputError')
    """
    return ERRORS.get(status, InputError)
