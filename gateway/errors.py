"""The house's errors, named by what the caller can do about them. Those of the networks are in `channels.base`."""

from __future__ import annotations


class ParlourError(Exception):
    """Base of everything that the gateway raises on purpose."""


class ConfigError(ParlourError):
    """One fault of the operator's, as one line: file, line (0: unknown), key (""), and what to write instead."""

    def __init__(self, path: str, line: int, key: str, text: str) -> None:
        super().__init__(": ".join(part for part in (f"{path}:{line}" if line else path, key, text) if part))
        self.path, self.line, self.key, self.text = path, line, key, text


class ConfigErrors(ParlourError):
    """All faults of a config at once."""

    def __init__(self, faults: list[ConfigError]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


class StartError(ParlourError):
    """The daemon cannot start, for a reason outside its config (port taken, folder locked): one line, exit 1."""


class StoreError(ParlourError):
    """Base of what a store can answer besides OSError."""


class Conflict(StoreError):
    """Somebody else appended to this session, or an earlier append failed: load it again, then decide anew."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"expected to build on seq {expected}, the log is at {found}")
        self.expected, self.found = expected, found


class NoSession(StoreError):
    """There is no such session."""


class SessionExists(StoreError):
    """The name is taken."""


class Corrupt(StoreError):
    """A file that cannot be read as what it should be (no header, a version newer than ours). It is left as it is."""

    def __init__(self, path: str, line: int, text: str) -> None:
        super().__init__(f"{path}:{line}: {text}")
        self.path, self.line, self.text = path, line, text


class BackendError(ParlourError):
    """The model did not answer as it should.

    `said` is the one plain sentence for the person in the chat: no HTML, no library text, no address, no secret. `retryable`: the same
    request may work later; `after`: seconds that the server asked for. `overflow`: the request was too long for the model.
    `lasting`: no wait mends it, only the operator: a wrong key, a model that is not there.
    """

    def __init__(
        self,
        said: str,
        *,
        retryable: bool,
        after: float | None = None,
        overflow: bool = False,
        lasting: bool = False,
        detail: str = "",
    ) -> None:
        super().__init__(detail or said)
        self.said, self.retryable, self.after, self.overflow, self.lasting = said, retryable, after, overflow, lasting


class Told(ParlourError):
    """A command cannot be carried out; `said` is what the person reads. Raised before anything was changed."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said
