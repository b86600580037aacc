"""`antiphon models`: the names that `antiphon serve` knows, and where their files are."""

import json
from typing import Annotated

import typer


def models(
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """List the known models, and where their files are on this machine.

    A folder with a Hugging Face model (safetensors) or a .gguf file works too.

    \b
    antiphon models
    antiphon serve path/to/model.gguf
    """
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
