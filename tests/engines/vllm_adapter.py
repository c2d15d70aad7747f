# SPDX-License-Identifier: Apache-2.0
"""The files of an adapter, of content that is made up."""

import json


def adapter_in(folder, content=b"weights", name="adapter_model.safetensors", **config):
    """The folder, with an adapter in it."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 8, "lora_alpha": 16, **config}))
    return folder
