"""Why a KV store can't be reached, in words that say what to do."""


def why_no_store(error: Exception) -> str:
    """What `error`, from connecting to a store's socket, means to who runs the server."""
    match error:
        case FileNotFoundError():
            return (
                "no socket is there. A store makes it when it starts: start `antiphon store`, or, "
                "if it runs, its folder was deleted: start it anew"
            )
        case ConnectionRefusedError():
            return "nobody listens there: the store has ended. Start it again"
        case OSError(strerror=str(text)):
            return text
        case _:
            return str(error)
