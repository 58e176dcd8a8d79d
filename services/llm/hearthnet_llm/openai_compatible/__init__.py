"""Any server that speaks the OpenAI Chat Completions wire: OpenAI, Ollama's /v1, LM Studio, vLLM, llama.cpp
and so on.
"""
