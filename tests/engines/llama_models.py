# SPDX-License-Identifier: Apache-2.0
"""Small models of llama.cpp with random weights: a kind of cache each."""

import gguf
import numpy

VOCABULARY, EMBEDDING, FEED_FORWARD, CONTEXT = 128, 64, 96, 8192
WINDOW = 96  # Of gemma3.


def _begin(path, arch, layers, name, vocabulary=VOCABULARY, embedding=EMBEDDING):
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(name)
    writer.add_vocab_size(vocabulary)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(embedding)
    writer.add_block_count(layers)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("no_vocab")
    return writer


def _attention(writer, heads, kv_heads, head_dim, feed_forward=FEED_FORWARD):
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)


def _end(writer, shapes, seed, half=False):
    draws = numpy.random.default_rng(seed)
    for name, shape in shapes.items():
        if name.endswith("norm.weight"):
            values = 1 + 0.1 * draws.standard_normal(shape, numpy.float32)
        elif name.endswith(("ssm_a", "ssm_d")):
            values = -numpy.abs(draws.standard_normal(shape, numpy.float32)) - 0.5
        else:
            values = draws.standard_normal(shape, numpy.float32) / numpy.float32(shape[-1]) ** 0.5
        writer.add_tensor(name, values.astype(numpy.float16) if half and len(shape) > 1 else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _layer(at, width, queries, values, feed_forward):
    """Attention and its feed-forward net, as Llama has them."""
    return {f"{at}.attn_norm.weight": (width,), f"{at}.attn_q.weight": (queries, width),
            f"{at}.attn_k.weight": (values, width), f"{at}.attn_v.weight": (values, width),
            f"{at}.attn_output.weight": (width, queries), **_net(at, width, feed_forward)}


def _net(at, width, feed_forward):
    return {f"{at}.ffn_norm.weight": (width,), f"{at}.ffn_gate.weight": (feed_forward, width),
            f"{at}.ffn_up.weight": (feed_forward, width), f"{at}.ffn_down.weight": (width, feed_forward)}


def llama(path, seed=1, layers=3, kv_heads=2, head_dim=32, name="small"):
    """Full attention."""
    writer = _begin(path, "llama", layers, name)
    _attention(writer, 4, kv_heads, head_dim)
    shapes = {"token_embd.weight": (VOCABULARY, EMBEDDING), "output_norm.weight": (EMBEDDING,)}
    for layer in range(layers):
        shapes |= _layer(f"blk.{layer}", EMBEDDING, 4 * head_dim, kv_heads * head_dim, FEED_FORWARD)
    _end(writer, shapes, seed)


def large(path, seed=1):
    """As much KV a token as a model of a billion weights has, 32 KiB, and little to compute."""
    layers, kv_heads, head_dim, feed_forward = 16, 4, 128, 128
    writer = _begin(path, "llama", layers, "large")
    _attention(writer, 4, kv_heads, head_dim, feed_forward)
    shapes = {"token_embd.weight": (VOCABULARY, EMBEDDING), "output_norm.weight": (EMBEDDING,)}
    for layer in range(layers):
        shapes |= _layer(f"blk.{layer}", EMBEDDING, 4 * head_dim, kv_heads * head_dim, feed_forward)
    _end(writer, shapes, seed, half=True)


def gemma3(path, seed=1):
    """Windows, and full attention in each sixth layer."""
    layers, head_dim = 7, 32
    writer = _begin(path, "gemma3", layers, "windows")
    _attention(writer, 4, 2, head_dim)
    writer.add_sliding_window(WINDOW)
    shapes = {"token_embd.weight": (VOCABULARY, EMBEDDING), "output_norm.weight": (EMBEDDING,)}
    for layer in range(layers):
        at = f"blk.{layer}"
        shapes |= _layer(at, EMBEDDING, 4 * head_dim, 2 * head_dim, FEED_FORWARD)
        shapes |= {f"{at}.post_attention_norm.weight": (EMBEDDING,), f"{at}.post_ffw_norm.weight": (EMBEDDING,),
                   f"{at}.attn_k_norm.weight": (head_dim,), f"{at}.attn_q_norm.weight": (head_dim,)}
    _end(writer, shapes, seed)


def mamba(path, seed=1):
    """Recurrent layers alone."""
    layers, inner, state, rank, kernel = 3, 2 * EMBEDDING, 8, 4, 4
    writer = _begin(path, "mamba", layers, "recurrent")
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    shapes = {"token_embd.weight": (VOCABULARY, EMBEDDING), "output_norm.weight": (EMBEDDING,)}
    for layer in range(layers):
        at = f"blk.{layer}"
        shapes |= {f"{at}.attn_norm.weight": (EMBEDDING,), f"{at}.ssm_in.weight": (2 * inner, EMBEDDING),
                   f"{at}.ssm_conv1d.weight": (inner, kernel), f"{at}.ssm_conv1d.bias": (inner,),
                   f"{at}.ssm_x.weight": (rank + 2 * state, inner), f"{at}.ssm_dt.weight": (inner, rank),
                   f"{at}.ssm_dt.bias": (inner,), f"{at}.ssm_a": (inner, state), f"{at}.ssm_d": (inner,),
                   f"{at}.ssm_out.weight": (EMBEDDING, inner)}
    _end(writer, shapes, seed)


def lfm2(path, seed=1):
    """Convolutions, and attention in every second layer."""
    layers, heads, kv_heads, kernel = 4, 4, 2, 3
    head_dim = EMBEDDING // heads
    writer = _begin(path, "lfm2", layers, "hybrid")
    _attention(writer, heads, [kv_heads * (layer % 2) for layer in range(layers)], head_dim)
    writer.add_shortconv_l_cache(kernel)
    shapes = {"token_embd.weight": (VOCABULARY, EMBEDDING), "token_embd_norm.weight": (EMBEDDING,)}
    for layer in range(layers):
        at = f"blk.{layer}"
        if layer % 2:
            shapes |= _layer(at, EMBEDDING, EMBEDDING, kv_heads * head_dim, FEED_FORWARD)
            shapes |= {f"{at}.attn_k_norm.weight": (head_dim,), f"{at}.attn_q_norm.weight": (head_dim,)}
        else:
            shapes |= {f"{at}.attn_norm.weight": (EMBEDDING,), f"{at}.shortconv.conv.weight": (EMBEDDING, kernel),
                       f"{at}.shortconv.in_proj.weight": (3 * EMBEDDING, EMBEDDING),
                       f"{at}.shortconv.out_proj.weight": (EMBEDDING, EMBEDDING), **_net(at, EMBEDDING, FEED_FORWARD)}
    _end(writer, shapes, seed)


MADE = {"llama": llama, "gemma3": gemma3, "mamba": mamba, "lfm2": lfm2}
