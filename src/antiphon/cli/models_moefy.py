"""`antiphon models moefy`: a dense model's MLPs cut into experts."""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.core.number_text import plural

from .bar import bar
from .kv_cost import bytes_text


def moefy(
    source: Annotated[
        str,
        typer.Argument(help="A dense model, as for `antiphon serve`.", show_default=False),
    ],
    folder: Annotated[Path, typer.Argument(help="The folder to make.", show_default=False)],
    experts: Annotated[
        int, typer.Option(help="Into how many experts each MLP is cut.", show_default=False)
    ],
    top_k: Annotated[
        int, typer.Option(help="How many of them each token takes.", show_default=False)
    ],
) -> None:
    """Write the dense model SOURCE as a mixture of experts, in a Hugging Face folder FOLDER.

    With as many active experts as there are, FOLDER computes what SOURCE does. With fewer it is
    quicker and much worse, since nothing is trained: `antiphon models check` measures it.

    \b
    antiphon models moefy smollm2-135m ./smollm2-8x --experts 8 --top-k 8
    antiphon serve ./smollm2-8x

    SOURCE may be a Llama, a Mistral or a Qwen3. FOLDER's weights are float32.
    """
    from antiphon.checkpoint import open_checkpoint, resolve
    from antiphon.moefy import moefy as write

    checkpoint = open_checkpoint(resolve(source))
    with bar("cutting") as advance:
        spec = write(checkpoint, folder, experts=experts, active=top_k, advance=advance)
    size = sum(file.stat().st_size for file in folder.iterdir())
    typer.echo(
        f"{folder}: {spec.architecture}, {plural(spec.layers, 'layer')} of "
        f"{plural(experts, 'expert')}, "
        f"{top_k} active, {bytes_text(size)}"
    )
