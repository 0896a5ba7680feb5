"""llama.cpp's side of `cargo xtask pair`: one measurement by the Python package llama-cpp-python.

    peer.py MODEL PROMPT REPLY THREADS

Prints tokens per second of a prompt of PROMPT tokens, or of REPLY tokens made one by one, after one run that
does not count. Flash attention on, KV f16, batch 2048 and 512, as llama-bench has it.
"""

import ctypes
import sys
import time

import llama_cpp as llama

path, prompt, reply, threads = sys.argv[1], *map(int, sys.argv[2:5])


@llama.llama_log_callback
def say_nothing(level, text, data):
    pass


llama.llama_log_set(say_nothing, ctypes.c_void_p(0))
llama.llama_backend_init()
model_params = llama.llama_model_default_params()
model_params.n_gpu_layers = 0
model = llama.llama_model_load_from_file(path.encode(), model_params)
if not model:
    sys.exit(f"peer.py: cannot load {path}")
params = llama.llama_context_default_params()
params.n_ctx = max(prompt, reply + 1)
params.n_batch, params.n_ubatch = 2048, 512
params.n_threads = params.n_threads_batch = threads
params.flash_attn_type = 1
params.type_k = params.type_v = 1  # GGML_TYPE_F16
context = llama.llama_init_from_model(model, params)
if not context:
    sys.exit("peer.py: no context")
vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))


def token(i):
    """The tokens that `kinglet bench` takes."""
    return i * 2654435761 % 2**32 % vocab


def decode(tokens):
    array = (llama.llama_token * len(tokens))(*tokens)
    if llama.llama_decode(context, llama.llama_batch_get_one(array, len(tokens))):
        sys.exit("peer.py: decoding failed")


def measure():
    llama.llama_memory_clear(llama.llama_get_memory(context), True)
    start = time.perf_counter()
    for first in range(0, prompt, params.n_batch):
        decode([token(i) for i in range(first, min(prompt, first + params.n_batch))])
    for i in range(reply):
        decode([token(i)])
    llama.llama_synchronize(context)
    return (prompt + reply) / (time.perf_counter() - start)


measure()
print(f"{measure():.3f}")
