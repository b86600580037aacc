"""What int8 and bf16 keys and values cost in quality: SmolLM2 against fp32 on English news.

    python benchmarks/quality.py                # fetches gensim's wheel for its Lee corpus
    python benchmarks/quality.py --text FILE    # another text

The Lee background corpus is 300 short news items (Australian Broadcasting Corporation, 2000-2001;
Lee, Pincombe & Welsh 2005). The text is cut into windows of 1,024 tokens, each a prompt. Goals:
mean KL at most 0.006 nats, the same likeliest token at 95 % of the positions or more, perplexity
within 0.5 %. (With each item as a prompt of its own, 100 to 400 tokens, the top-1 agreement is
94.5 %: less context, flatter predictions.)
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path

import torch
from support import result

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.engine import KvDtype, compare, load_llama, numerics_id
from antiphon.text import Tokenizer

WINDOW = 1024
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
    parser.add_argument("--positions", type=int, default=8192, help="about so many")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache-dir", type=Path, default=Path.home() / ".cache/antiphon")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    checkpoint = open_checkpoint(resolve(options.model))
    tokenizer = Tokenizer.load(checkpoint.tokenizer)
    text = options.text.read_text() if options.text else corpus()
    tokens = tokenizer.encode(text[: 8 * options.positions])[: options.positions + WINDOW]
    windows = [tokens[at : at + WINDOW] for at in range(0, options.positions, WINDOW)]
    reference, candidate = (
        load_llama(checkpoint, dtype=dtype, cache_dir=options.cache_dir)
        for dtype in ("fp32", "int8")
    )
    measured = {
        "model": options.model,
        "text": options.text.name if options.text else Path(CORPUS).name,
        "window_tokens": WINDOW,
        "reference": numerics_id("fp32"),
    }
    for kv_dtype in (KvDtype.BF16, KvDtype.FP32):
        agreement = compare(reference, candidate, windows, kv_dtype=kv_dtype)
        print(f"int8, keys and values in {kv_dtype.value}: {agreement}")
        measured[numerics_id("int8", kv_dtype)] = asdict(agreement)
    print(result.write("quality", measured))


if __name__ == "__main__":
    main()
