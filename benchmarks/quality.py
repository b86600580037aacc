"""What int8 costs in quality: SmolLM2 in int8 against fp32 on English news.

    python benchmarks/quality.py                # fetches gensim's wheel for its Lee corpus
    python benchmarks/quality.py --text FILE    # another text, a document a line

The Lee background corpus is 300 short news items (Australian Broadcasting Corporation, 2000-2001;
Lee, Pincombe & Welsh 2005). Each document is one prompt. Goals: mean KL at most 0.006 nats, the same
likeliest token at 95 % of the positions or more, perplexity within 0.5 %.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path

import result
import torch

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.engine import load_llama, numerics_id
from antiphon.testing.quality import compare
from antiphon.text import Tokenizer

CORPUS = "gensim/test/test_data/lee_background.cor"


def corpus() -> str:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "gensim"]
        subprocess.run([*command, "--only-binary", ":all:", "--dest", folder], check=True)
        [wheel] = Path(folder).glob("gensim-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(CORPUS).decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--positions", type=int, default=4096, help="stop after so many")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache-dir", type=Path, default=Path.home() / ".cache/antiphon")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    checkpoint = open_checkpoint(resolve(options.model))
    tokenizer = Tokenizer.load(checkpoint.tokenizer)
    texts, left = [], options.positions
    for document in (options.text.read_text() if options.text else corpus()).splitlines():
        tokens = tokenizer.encode(document)[:1024]
        if len(tokens) > 1 and left > 0:
            texts.append(tokens)
            left -= len(tokens) - 1
    reference, candidate = (
        load_llama(checkpoint, dtype=dtype, cache_dir=options.cache_dir)
        for dtype in ("fp32", "int8")
    )
    agreement = compare(reference, candidate, texts)
    measured = {
        "model": options.model,
        "text": str(options.text) if options.text else CORPUS,
        "documents": len(texts),
        "numerics": {dtype: numerics_id(dtype) for dtype in ("fp32", "int8")},
        **asdict(agreement),
    }
    print(agreement)
    print(result.write("quality", measured))


if __name__ == "__main__":
    main()
