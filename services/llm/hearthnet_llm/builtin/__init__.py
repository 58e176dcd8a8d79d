"""The model in the box: llama.cpp in this process, with tool calls that a grammar makes valid."""
