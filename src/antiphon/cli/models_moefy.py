"""`antiphon models moefy`: a dense model's MLPs cut into experts."""

from pathlib import Path
from typing import Annotated

import typer

from .bar import bar
from .kv_cost import bytes_text


def moefy(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A dense model, as for `antiphon serve`.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DST", help="The folder to make.")],
    experts: Annotated[
        int, typer.Option(help="Into how many experts each MLP is cut.", show_default=False)
    ],
    top_k: Annotated[
        int, typer.Option(help="How many of them each token takes.", show_default=False)
    ],
) -> None:
    """Write the dense model SRC as a mixture of experts, in a Hugging Face folder DST.

    With as many active experts as there are, DST computes what SRC does. With fewer it is quicker
    and worse: measure it with `antiphon models check DST --reference SRC`. Nothing is trained.

    \b
    antiphon models moefy smollm2-135m ./smollm2-8x --experts 8 --top-k 8
    antiphon serve ./smollm2-8x

    SRC may be a Llama, a Mistral or a Qwen3. DST's weights are float32.
    """
    from antiphon.checkpoint import open_checkpoint, resolve
    from antiphon.moefy import moefy as write

    checkpoint = open_checkpoint(resolve(source))
    with bar("cutting") as advance:
        spec = write(checkpoint, folder, experts=experts, active=top_k, advance=advance)
    size = sum(file.stat().st_size for file in folder.iterdir())
    typer.echo(
        f"{folder}: {spec.architecture}, {spec.layers} layers of {experts} experts, "
        f"{top_k} active, {bytes_text(size)}"
    )
