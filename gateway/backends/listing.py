"""What an OpenAI-compatible endpoint says of itself: its list of models, and its clock. Pure. Called by `gateway.backends.openai`."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import msgspec

from gateway.backends.base import Sight


class _Model(msgspec.Struct):
    id: str = ""


class _Models(msgspec.Struct):
    data: tuple[_Model, ...] | msgspec.UnsetType | None = msgspec.UNSET


_models = msgspec.json.Decoder(_Models)


def sight(body: bytes, date: str, now: float) -> Sight:
    """`body`: of GET /models; what is no list counts as none. `date`: of its head; `now`: when it came, by our clock."""
    try:
        data = _models.decode(body).data
    except (ValueError, RecursionError):
        data = msgspec.UNSET
    listed = data if isinstance(data, tuple) else ()
    models = tuple(dict.fromkeys(model.id for model in listed if model.id))
    try:
        ahead = parsedate_to_datetime(date).timestamp() - now
    except (ValueError, OverflowError):
        ahead = None
    # Ollama without a model says null.
    return Sight(models, ahead, none=data is None or data == ())
