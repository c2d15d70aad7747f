// SPDX-License-Identifier: Apache-2.0
//
// Which model a tool or test runs: the one this folder ships, unless the environment names another.

#pragma once

#include <optional>
#include <string>

#include "tools/llama/checkpoint.h"
#include "tools/llama/tokenizer.h"

namespace cairn::llama {

// $CAIRN_LLAMA_CHECKPOINT and $CAIRN_LLAMA_TOKENIZER, else the shipped files. A model from
// elsewhere needs both.
std::string DefaultCheckpointPath();
std::string DefaultTokenizerPath();

// A text that the shipped model was not trained on.
std::string HeldOutTextPath();

struct Model {
  Checkpoint checkpoint;
  Tokenizer tokenizer;
};

// Loads the pair and checks that they fit each other. On failure returns nothing and sets `*error`.
std::optional<Model> LoadModel(const std::string& checkpoint_path,
                               const std::string& tokenizer_path, std::string* error);

// The whole content of a file; on failure nothing and `*error`.
std::optional<std::string> ReadFile(const std::string& path, std::string* error);

}  // namespace cairn::llama
