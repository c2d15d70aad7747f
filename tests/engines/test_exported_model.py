# SPDX-License-Identifier: Apache-2.0
"""Property: the exported model is the project's own: the same token ids of a text, and the same logits but for
the order of sums and the rounding of what attention reads. Method: transformers and llama.cpp beside tools/llama,
on text that the model was not trained on; a model whose keys pair as the other kind of engine does must not pass.

The project's llama keeps K and V in bf16 and reads them rounded; transformers here keeps float32, llama.cpp f16.
bf16 has 8 bits, so a logit may move by about 2^-8 of its size, and logits go up to about 20.
"""

import contextlib
import json
import shutil
import urllib.request

import numpy
import pytest
import torch
import transformers

LARGEST = 0.1  # Difference of a logit.
TYPICAL = 0.01  # Root of the mean square of it.
SAME_BEST = 0.98  # Rows whose likeliest token is the same: near ties may turn.
ROWS = 300
PROMPT_TOKENS, NEW_TOKENS, ALTERNATIVES = 260, 40, 10


@pytest.fixture(scope="module")
def ids(own_llama):
    return own_llama.encode(own_llama.heldout)


@pytest.fixture(scope="module")
def expected(own_llama, ids):
    return own_llama.logits(ids[:ROWS])


def transformers_logits(folder, ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def agree(ours, theirs):
    difference = numpy.abs(ours - theirs)
    same = (ours.argmax(-1) == theirs.argmax(-1)).mean()
    print(f"largest {difference.max():.4f}, typical {(difference ** 2).mean() ** 0.5:.4f}, same best {same:.4f}")
    return difference.max() <= LARGEST and (difference ** 2).mean() ** 0.5 <= TYPICAL and same >= SAME_BEST


def test_transformers_has_the_same_token_ids(exported, own_llama, ids):
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported.huggingface)
    text = own_llama.heldout.read_text()
    assert tokenizer(text)["input_ids"] == ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_token_ids_of_what_is_no_word(exported, own_llama, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported.huggingface)
    for number, text in enumerate(["x", " two  spaces ", "tab\tand\nline\r\n", "\u00e9t\u00e9 \u6c34 \U0001f600", "a\u0301"]):
        path = tmp_path / str(number)
        path.write_bytes(text.encode())
        assert tokenizer(text)["input_ids"] == own_llama.encode(path), repr(text)


def test_transformers_has_the_same_logits(exported, ids, expected):
    assert agree(expected, transformers_logits(exported.huggingface, ids[:ROWS]))


def test_keys_that_pair_otherwise_are_another_model(exported, ids, expected, tmp_path):
    """The tolerance distinguishes a wrong order of the rotation from rounding."""
    folder = shutil.copytree(exported.huggingface, tmp_path / "hf")
    from safetensors.numpy import load_file, save_file
    tensors = load_file(folder / "model.safetensors")
    for name, values in tensors.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            halves = values.reshape(-1, 2, 32, values.shape[-1])
            tensors[name] = numpy.ascontiguousarray(halves.transpose(0, 2, 1, 3).reshape(values.shape))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert not agree(expected, transformers_logits(folder, ids[:ROWS]))


@contextlib.contextmanager
def llama_cpp(path):
    """A function that asks llama.cpp's server, in this process."""
    xllamacpp = pytest.importorskip("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = 2048
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.verbosity = 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)

    def ask(path, **content):
        request = urllib.request.Request(server.listening_address + path, json.dumps(content).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    yield ask
    del server


def test_llama_cpp_has_the_same_tokens_and_logits(exported, own_llama, ids):
    with llama_cpp(exported.gguf) as ask:
        text = own_llama.heldout.read_text()
        assert ask("/tokenize", content=text, add_special=True)["tokens"] == ids
        answer = ask("/completion", prompt=ids[:PROMPT_TOKENS], n_predict=NEW_TOKENS, temperature=0,
                     n_probs=ALTERNATIVES, return_tokens=True, ignore_eos=True)
    assert len(answer["tokens"]) == NEW_TOKENS
    logits = own_llama.logits(ids[:PROMPT_TOKENS] + answer["tokens"])[PROMPT_TOKENS - 1:-1]
    logprobs = torch.log_softmax(torch.from_numpy(logits), -1).numpy()
    theirs = [{one["id"]: one["logprob"] for one in step["top_logprobs"]} for step in answer["completion_probabilities"]]
    assert [len(step) for step in theirs] == [ALTERNATIVES] * NEW_TOKENS
    difference = max(abs(logprobs[i][token] - logprob) for i, step in enumerate(theirs) for token, logprob in step.items())
    same = numpy.mean(logprobs.argmax(-1) == answer["tokens"])
    print(f"largest {difference:.4f}, same best {same:.4f}")
    assert difference <= LARGEST
    assert same >= SAME_BEST - 1 / NEW_TOKENS
