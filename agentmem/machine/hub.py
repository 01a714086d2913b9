"""Whether the model hub can be reached."""

import threading
import urllib.error
import urllib.request
from typing import Final

from huggingface_hub import constants

_HUB_TIMEOUT_S: Final = 1.5


def hub_answers() -> bool:
    """Return whether the hub responds; the timeout includes a hanging DNS lookup."""
    answers: list[bool] = []

    def ask() -> None:
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")  # noqa: S310 - the hub's own setting
        try:
            urllib.request.urlopen(request, timeout=_HUB_TIMEOUT_S).close()  # noqa: S310 - as above
        except urllib.error.HTTPError:
            answers.append(True)
        except (OSError, ValueError):
            pass
        else:
            answers.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_HUB_TIMEOUT_S)
    return bool(answers)
