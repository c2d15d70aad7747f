# SPDX-License-Identifier: Apache-2.0
"""Property: cairn.rotate_keys gives the keys that transformers computes at other positions, and the frequencies of
LongRoPE are those of transformers. Method: keys that transformers' own functions rotate, in both pairings."""

import pytest
import torch
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.cohere import modeling_cohere
from transformers.models.llama import modeling_llama

import cairn

HEADS, WIDTH = 2, 64


def rotate(module, embedding, keys, positions):
    """Keys of [1, heads, tokens, elements] at positions, by the model's own code."""
    cos, sin = embedding(keys, torch.tensor([positions]))
    return module.apply_rotary_pos_emb(keys, keys, cos, sin)[1]


@pytest.mark.parametrize("pairing, module, embedding", [
    ("halves", modeling_llama, modeling_llama.LlamaRotaryEmbedding),
    ("adjacent", modeling_cohere, modeling_cohere.CohereRotaryEmbedding),
])  # fmt: skip
@pytest.mark.parametrize("dtype, roundoffs", [(torch.float32, 8 * 2**-24), (torch.bfloat16, 4 * 2**-8)])
def test_keys_become_those_of_the_engine_at_other_positions(pairing, module, embedding, dtype, roundoffs):
    config = LlamaConfig(hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, num_key_value_heads=HEADS)
    embedding = embedding(config=config)
    group = cairn.LayerGroup.full_attention(
        layers=1, kv_heads=HEADS, head_dim=WIDTH, dtype=str(dtype).removeprefix("torch."), pairing=pairing,
        inv_freq=embedding.inv_freq.tolist())  # fmt: skip
    torch.manual_seed(1)
    before = torch.randn(1, HEADS, 5, WIDTH).to(dtype)
    source, target = [0, 7, 300, 2, 9000], [12000, 0, 300, 3, 131]
    keys = rotate(module, embedding, before, source)
    want = rotate(module, embedding, before, target)
    # As the engine has them, head by head.
    cairn.rotate_keys(group, keys[0].transpose(0, 1), source, target)
    error = (keys.float() - want.float()).norm(dim=-1) / want.float().norm(dim=-1)
    assert error.max() <= roundoffs
    unturned = rotate(module, embedding, before, source).float() - want.float()
    assert unturned[:, :, :2].norm() > 0.1 * want.float().norm()


@pytest.mark.parametrize("context", [4096, 4097])
def test_frequencies_of_longrope(context):
    short, long = [1.0 + 0.01 * i for i in range(48)], [1.0 + 1.25 * i for i in range(48)]
    config = Phi3Config(
        hidden_size=3072, num_attention_heads=32, max_position_embeddings=131072, original_max_position_embeddings=4096,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": short, "long_factor": long,
                         "original_max_position_embeddings": 4096})  # fmt: skip
    theirs, scale = ROPE_INIT_FUNCTIONS["longrope"](config, "cpu", seq_len=context)
    ours = cairn.long_rope_frequencies(96, 10_000.0, short_factors=short, long_factors=long, original_positions=4096,
                                       context_positions=context)  # fmt: skip
    # They compute in fp32, in several steps.
    torch.testing.assert_close(torch.tensor(ours), theirs, rtol=1e-6, atol=0)
    assert cairn.long_rope_mscale(32.0, 4096) == pytest.approx(scale)
