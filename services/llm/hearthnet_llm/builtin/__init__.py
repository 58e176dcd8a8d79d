"""The built-in model: llama.cpp in this process; a grammar makes its tool calls valid."""
