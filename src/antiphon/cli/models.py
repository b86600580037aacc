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

    rows = [
        {
            "name": model.name,
            "path": str(model.path) if model.path else None,
            "remedy": model.remedy,
        }
        for model in known_models()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max(len(row["name"] or "") for row in rows)
    for row in rows:
        typer.echo(f"{row['name']:{width}}  {row['path'] or 'not here: ' + (row['remedy'] or '')}")
