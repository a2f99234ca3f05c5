"""What a hub or the network refuses, as one line with the remedy."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from minillm.errors import RunError
from minillm.transfer import network_errors


def endpoint() -> str:
    """Address of the hub, without a slash at its end."""
    from huggingface_hub import constants

    return os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")


def status_of(error: Exception) -> int | None:
    """The HTTP status of a hub's refusal; None when there was no answer at all."""
    return getattr(getattr(error, "response", None), "status_code", None)


@contextmanager
def explained(hub_id: str) -> Iterator[None]:
    """Turn what the hub's client raises into one line of ours."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        yield
    except GatedRepoError:
        line = (
            f"{hub_id} is gated: accept its terms on {endpoint()}/{hub_id}, then set HF_TOKEN to your token"
        )
    except RepositoryNotFoundError:
        line = (
            f"no model {hub_id!r} on {endpoint()} and no such folder here: check the spelling; "
            "for a private model set HF_TOKEN"
        )
    except network_errors() as error:
        line = _refusal(hub_id, error)
    else:
        return
    raise RunError(line)


def _refusal(hub_id: str, error: Exception) -> str:
    status = status_of(error)
    if status in (401, 403):
        return f"{endpoint()} refuses {hub_id} ({status}): set HF_TOKEN to a token that may read it"
    if status:
        return f"{endpoint()} answered {status} for {hub_id}: try again later, or set another HF_ENDPOINT"
    return (
        f"cannot reach {endpoint()} for {hub_id} ({type(error).__name__}): check the network, "
        "set HF_ENDPOINT to a hub within reach, or give a folder"
    )
