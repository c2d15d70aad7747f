# SPDX-License-Identifier: Apache-2.0
"""A process with vLLM and a model that sees, for test_vllm_pictures.py: prints one line of JSON for each prompt.

Usage: vllm_pictures_process.py JSON, {"language": folder of a language model, whose tokenizer is used, "model": folder
to make, "extra": kv_connector_extra_config, "before", "behind": text around a picture, "pictures": their numbers}.
"""

import json
import os
import sys

import vllm_process  # Its environment.


def make_model(language, folder):
    """A LLaVA with weights that are drawn: what it says is nonsense, and depends on every token and on the picture."""
    import torch
    from transformers import (
        AutoTokenizer, CLIPImageProcessor, CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration,
        LlavaProcessor)
    tokenizer = AutoTokenizer.from_pretrained(language)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"], "pad_token": "<pad>"})
    text = LlamaConfig(vocab_size=len(tokenizer), hidden_size=128, intermediate_size=192, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=2048)
    vision = CLIPVisionConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
                              image_size=56, patch_size=14, projection_dim=32)
    torch.manual_seed(5)
    model = LlavaForConditionalGeneration(LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_select_strategy="default", vision_feature_layer=-2))
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.15)
    model.to(torch.bfloat16).save_pretrained(folder)
    pixels = CLIPImageProcessor(size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56})
    LlavaProcessor(image_processor=pixels, tokenizer=tokenizer, patch_size=14,
                   vision_feature_select_strategy="default", num_additional_image_tokens=1).save_pretrained(folder)


def picture(number):
    import numpy
    from PIL import Image
    return Image.fromarray(numpy.random.default_rng(number).integers(0, 256, (56, 56, 3), dtype=numpy.uint8))


def main():
    from vllm import SamplingParams
    wanted = json.loads(sys.argv[1])
    make_model(wanted["language"], wanted["model"])
    # vLLM's own class for it needs torchvision.
    llm = vllm_process.engine(wanted["model"], wanted["extra"], model_impl="transformers")
    for number in wanted["pictures"]:
        prompt = {"prompt": f"{wanted['before']}<image>{wanted['behind']}",
                  "multi_modal_data": {"image": picture(number)}}
        sampling = SamplingParams(temperature=0, max_tokens=6, logprobs=2, ignore_eos=True)
        (output,) = llm.generate([prompt], sampling, use_tqdm=False)
        answer = vllm_process.answer_of(output, output.outputs[0])
        begin = answer["prompt"].index(llm.get_tokenizer().convert_tokens_to_ids("<image>"))
        print(json.dumps({**answer, "begin": begin}), flush=True)


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main()
