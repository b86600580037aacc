"""A batch of prompts in this process, without a server.

.venv/bin/python examples/02_python_api.py
"""

from antiphon import LLM, SamplingParams

PROMPTS = ["The capital of France is", "The capital of Japan is", "Two plus two is"]


def main() -> None:
    with LLM("smollm2-135m", kv_memory="256MB") as llm:
        for result in llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=8)):
            print(result.prompt, "->", result.outputs[0].text)

        question = [{"role": "user", "content": "What is the capital of France?"}]
        answer = llm.chat(question, SamplingParams(temperature=0, max_tokens=32))[0]
        print(answer.outputs[0].text)


if __name__ == "__main__":
    main()
