"""Every exception that Antiphon raises on purpose, sorted by who must act.

    AntiphonError
    ├── ClientError        the caller must change the request           HTTP 4xx
    ├── UsageError         the operator must change a command, a file   exit code 2, one line
    │   ├── ConfigError        a configuration key or value
    │   └── ModelFileError     a model file: names the file and, where known, the tensor
    ├── PeerError          another process failed: retry elsewhere      HTTP 503
    └── BugError           our own promise is broken: the process ends and is restarted

Outcomes that are expected (a full queue, a prompt too long for the memory) are not exceptions:
they are return values such as `types.Rejected`.
"""


class AntiphonError(Exception):
    """Root of the tree: catch this to catch everything that Antiphon raises on purpose."""


class ClientError(AntiphonError):
    """The request is wrong. `field` names the offending part, `status` is the HTTP status."""

    def __init__(
        self, message: str, *, field: str | None = None, status: int = 400, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.status = status
        self.code = code


class UsageError(AntiphonError):
    """The command, its files or its machine are wrong: printed as one line, exit code 2."""


class ConfigError(UsageError):
    """A configuration key is unknown or its value is out of range. The message names the key."""


class ModelFileError(UsageError):
    """A model file can't be used. The message names the file and, where known, the tensor."""

    def __init__(self, path: object, problem: str, *, tensor: str | None = None) -> None:
        where = f"{path}: tensor {tensor!r}" if tensor else f"{path}"
        super().__init__(f"{where}: {problem}")
        self.path = path
        self.tensor = tensor


class PeerError(AntiphonError):
    """A worker, store or other process failed or went silent: the work can be tried elsewhere."""


class BugError(AntiphonError):
    """A law that the code promises was broken. The process must not go on with corrupt state."""
