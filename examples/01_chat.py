"""Chat with a running server, whole and streamed, with OpenAI's own client.

make serve                      # in one terminal
python examples/01_chat.py      # in another (pip install openai)
"""

import sys

from openai import OpenAI


def main(base_url: str) -> None:
    client = OpenAI(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id

    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=32,
    )
    print(answer.choices[0].message.content)

    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Name three colours."}],
        seed=7,
        max_tokens=32,
        stream=True,
    )
    for chunk in stream:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1")
