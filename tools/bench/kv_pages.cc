// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/kv_pages.h"

#include <cinttypes>
#include <cstdio>

#include "tools/llama/model_files.h"
#include "tools/llama/transformer.h"

namespace cairn::bench {
namespace {

Status Refused(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

}  // namespace

std::vector<std::span<const std::byte>> KvPlane::Pages(uint32_t layer) const {
  const size_t page_bytes = page_shape().raw_bytes();
  const size_t head_bytes = page_bytes / kPageTokens * tokens;
  std::vector<std::span<const std::byte>> pages;
  for (size_t head = 0; head < heads; ++head) {
    const std::byte* begin = bytes.data() + (layer * size_t{heads} + head) * head_bytes;
    for (size_t page = 0; page < tokens / kPageTokens; ++page) {
      pages.emplace_back(begin + page * page_bytes, page_bytes);
    }
  }
  return pages;
}

Result<KvPages> KvOfOwnModel(uint32_t tokens) {
  std::string error;
  const auto model =
      llama::LoadModel(llama::DefaultCheckpointPath(), llama::DefaultTokenizerPath(), &error);
  const auto text = llama::ReadFile(llama::HeldOutTextPath(), &error);
  if (!model || !text) return Status(StatusCode::kIoError, error);
  std::vector<int32_t> ids = model->tokenizer.Encode(*text);
  const llama::Config& config = model->checkpoint.config();
  if (tokens < kPageTokens || tokens > ids.size() ||
      tokens > static_cast<uint32_t>(config.max_positions)) {
    return Refused("--tokens " + std::to_string(tokens) + ": a page has " +
                   std::to_string(kPageTokens) + ", the model " +
                   std::to_string(config.max_positions) + " positions, the text " +
                   std::to_string(ids.size()) + " tokens");
  }
  KvPages pages{.origin = "own model, held-out text", .token_ids = {ids.begin(), ids.end()}};
  ids.resize(tokens);
  llama::KvCache cache(config, static_cast<int>(tokens));
  llama::Transformer<float>(model->checkpoint).Forward(ids, 0, llama::LogitsOf::kNoRow, &cache);
  for (const char* name : {"k", "v"}) {
    KvPlane plane{.name = name,
                  .layers = static_cast<uint32_t>(cache.layers()),
                  .heads = static_cast<uint32_t>(cache.kv_heads()),
                  .tokens = tokens,
                  .channels = static_cast<uint32_t>(cache.head_dim())};
    for (int layer = 0; layer < cache.layers(); ++layer) {
      for (int head = 0; head < cache.kv_heads(); ++head) {
        for (int position = 0; position < static_cast<int>(tokens); ++position) {
          const uint16_t* row =
              plane.name == "k" ? cache.K(layer, position, head) : cache.V(layer, position, head);
          const auto* bytes = reinterpret_cast<const std::byte*>(row);
          plane.bytes.insert(plane.bytes.end(), bytes, bytes + 2 * plane.channels);
        }
      }
    }
    pages.planes.push_back(std::move(plane));
  }
  return pages;
}

Result<KvPages> KvOfFile(const std::string& path, const std::string& shape) {
  KvPlane plane{.name = "kv"};
  int end = -1;
  if (std::sscanf(shape.c_str(), "%" SCNu32 ",%" SCNu32 ",%" SCNu32 ",%" SCNu32 "%n", &plane.layers,
                  &plane.heads, &plane.tokens, &plane.channels, &end) != 4 ||
      static_cast<size_t>(end) != shape.size()) {
    return Refused("--shape " + shape + ": four numbers L,H,T,D are expected");
  }
  constexpr uint32_t kLargest = 1 << 16;  // The limit of each; far from where products overflow.
  for (const uint32_t n : {plane.layers, plane.heads, plane.channels}) {
    if (n < 1 || n > kLargest) return Refused("--shape " + shape + ": out of range");
  }
  if (plane.tokens < kPageTokens) {
    return Refused("--shape " + shape + ": a page has " + std::to_string(kPageTokens) + " tokens");
  }
  std::string error;
  const auto content = llama::ReadFile(path, &error);
  if (!content) return Status(StatusCode::kIoError, error);
  const auto expected =
      static_cast<double>(plane.layers) * plane.heads * plane.tokens * plane.channels * 2;
  if (static_cast<double>(content->size()) != expected) {
    return Refused(path + ": " + std::to_string(content->size()) + " bytes are not --shape " +
                   shape + " in bf16");
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(content->data());
  plane.bytes.assign(bytes, bytes + content->size());
  KvPages pages{.origin = path};
  pages.planes.push_back(std::move(plane));
  return pages;
}

}  // namespace cairn::bench
