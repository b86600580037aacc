#!/usr/bin/env bash
# The routes of a running server (`make serve`), with nothing but curl.
set -euo pipefail
url=${1:-http://127.0.0.1:8000}
json='Content-Type: application/json'

curl -fsS "$url/v1/models"; echo
curl -fsS "$url/v1/chat/completions" -H "$json" -d '{
  "model": "smollm2-135m", "temperature": 0, "max_tokens": 16,
  "messages": [{"role": "user", "content": "What is the capital of France?"}]}'; echo
curl -fsSN "$url/v1/completions" -H "$json" -d '{
  "model": "smollm2-135m", "prompt": "Once upon a time", "max_tokens": 8, "stream": true}'
curl -fsS "$url/tokenize" -H "$json" -d '{"prompt": "Hello, world"}'; echo
curl -fsS "$url/metrics" | grep '^vllm:generation_tokens_total'
