// SPDX-License-Identifier: Apache-2.0
//
// Files for the tests of the small model: temporary ones, and checkpoints of any shape with random
// weights.

#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>

#include "tools/llama/checkpoint.h"

namespace cairn::llama {

// A directory that lives as long as the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = ::testing::TempDir() + "cairn-llama-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
      std::abort();
    }
    path_ = pattern;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string Path(const std::string& name) const { return (path_ / name).string(); }

  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }

 private:
  std::filesystem::path path_;
};

inline std::string Content(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

template <typename T>
void AppendValue(std::string* to, T value) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The bytes of a checkpoint of this shape. The weights are large enough for attention to be far
// from uniform.
inline std::string RandomCheckpointBytes(const Config& c, uint32_t seed) {
  std::string bytes;
  for (const int field : {c.dim, c.hidden_dim, c.layers, c.heads, c.kv_heads,
                          c.shared_classifier ? c.vocab_size : -c.vocab_size, c.max_positions}) {
    AppendValue<int32_t>(&bytes, field);
  }
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  const auto append = [&](int count, float mean, float deviation) {
    for (int i = 0; i < count; ++i) {
      AppendValue<float>(&bytes, mean + deviation * normal(generator));
    }
  };
  const float deviation = 1.5f / std::sqrt(static_cast<float>(c.dim));
  append(c.vocab_size * c.dim, 0, 1);                         // embedding
  append(c.layers * c.dim, 1, 0.1f);                          // attention_norm
  append(c.layers * c.dim * c.dim, 0, deviation);             // wq
  append(c.layers * c.kv_dim() * c.dim, 0, deviation);        // wk
  append(c.layers * c.kv_dim() * c.dim, 0, deviation);        // wv
  append(c.layers * c.dim * c.dim, 0, deviation);             // wo
  append(c.layers * c.dim, 1, 0.1f);                          // ffn_norm
  append(3 * c.layers * c.hidden_dim * c.dim, 0, deviation);  // w1, w2, w3
  append(c.dim, 1, 0.1f);                                     // final_norm
  append(c.max_positions * c.head_dim(), 7, 1);               // rotary tables: nobody may read them
  if (!c.shared_classifier) {
    append(c.vocab_size * c.dim, 0, deviation);
  }
  return bytes;
}

inline Checkpoint RandomCheckpoint(const Config& config, uint32_t seed) {
  const TemporaryDirectory directory;
  std::string error;
  std::optional<Checkpoint> checkpoint =
      Checkpoint::Load(directory.Write("model.bin", RandomCheckpointBytes(config, seed)), &error);
  EXPECT_TRUE(checkpoint.has_value()) << error;
  return std::move(checkpoint).value();
}

}  // namespace cairn::llama
