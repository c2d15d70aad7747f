// SPDX-License-Identifier: Apache-2.0

#include "tools/llama/model_files.h"

#include <cstdlib>
#include <utility>

#include "tools/llama/file.h"

namespace cairn::llama {
namespace {

std::string FromEnvironment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

}  // namespace

std::string DefaultCheckpointPath() {
  return FromEnvironment("CAIRN_LLAMA_CHECKPOINT", CAIRN_LLAMA_DATA_DIR "/model.bin");
}

std::string DefaultTokenizerPath() {
  return FromEnvironment("CAIRN_LLAMA_TOKENIZER", CAIRN_LLAMA_DATA_DIR "/tokenizer.bin");
}

std::string HeldOutTextPath() { return CAIRN_LLAMA_DATA_DIR "/heldout.txt"; }

std::optional<Model> LoadModel(const std::string& checkpoint_path,
                               const std::string& tokenizer_path, std::string* error) {
  std::optional<Checkpoint> checkpoint = Checkpoint::Load(checkpoint_path, error);
  if (!checkpoint) {
    return std::nullopt;
  }
  const int vocab_size = checkpoint->config().vocab_size;
  std::optional<Tokenizer> tokenizer = Tokenizer::Load(tokenizer_path, vocab_size, error);
  if (!tokenizer) {
    return std::nullopt;
  }
  return Model{std::move(*checkpoint), std::move(*tokenizer)};
}

std::optional<std::string> ReadFile(const std::string& path, std::string* error) {
  InputFile file(path);
  std::string content;
  if (file.ok() && file.size_bytes() <= content.max_size() / 2) {
    content.resize(file.size_bytes());
    if (file.Read(content.data(), content.size())) {
      return content;
    }
  }
  *error = path + ": " + file.error();
  return std::nullopt;
}

}  // namespace cairn::llama
