"""`antiphon models`: which models there are, what they are, and how good they are quantised."""

import json
from typing import Annotated

import typer

from .models_check import check
from .models_inspect import inspect
from .models_moefy import moefy

models_app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="See what fits: antiphon models inspect smollm2-135m",
)
models_app.command()(inspect)
models_app.command()(check)
models_app.command()(moefy)


@models_app.callback()
def models(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """List the known models, and where their files are; look at a model, measure or change it.

    A folder with a Hugging Face model (safetensors) or a .gguf file works too.

    \b
    antiphon models
    antiphon serve path/to/model.gguf
    """
    if context.invoked_subcommand is not None:
        return
    from antiphon.checkpoint import known_models

    known = known_models()
    if as_json:
        rows = [
            {
                "name": model.name,
                "description": model.description,
                "licence": model.licence,
                "path": str(model.path) if model.path else None,
                "how_to_get": model.how_to_get,
            }
            for model in known
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    for model in known:
        typer.echo(f"{model.name}    {model.description}. {model.licence}")
        typer.echo(f"    {model.path or 'not installed: ' + model.how_to_get}")
