"""What holds around work that no caller may make fail."""

from collections.abc import Callable


class Law:
    """Around work on the book that no caller may make fail: whatever it raises is a broken law,
    which is given to `on_broken` and passed on."""

    def __init__(self, on_broken: Callable[[BaseException], None]) -> None:
        self._on_broken = on_broken

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._on_broken(error)
