// SPDX-License-Identifier: Apache-2.0

#include "tools/llama/checkpoint.h"

#include <array>
#include <bit>
#include <cmath>

#include "tools/llama/file.h"

namespace cairn::llama {
namespace {

static_assert(std::endian::native == std::endian::little,
              "checkpoints are read as they lie in the file");

using Header = std::array<int32_t, 7>;

// The first word of the later formats of llama2.c's export script, which run.c does not read
// either.
constexpr int32_t kLaterFormatMagic = 0x616b3432;

struct Field {
  const char* name;
  int32_t max;
};

// The limits are far above any model that a CPU tool runs; they keep every product below within 64
// bits.
constexpr std::array<Field, 7> kFields = {{{"dim", 1 << 16},
                                           {"hidden_dim", 1 << 18},
                                           {"layers", 1 << 10},
                                           {"heads", 1 << 12},
                                           {"kv_heads", 1 << 12},
                                           {"vocabulary size", 1 << 20},
                                           {"positions", 1 << 24}}};

constexpr size_t kVocabularyField = 5;  // its sign says whether there is a classifier

// Empty if the header is good, else what is wrong with it.
std::string HeaderProblem(const Header& header) {
  if (header[0] == kLaterFormatMagic) {
    return "header is of llama2.c export version " + std::to_string(header[1]) +
           ", expected version 0";
  }
  for (size_t i = 0; i < kFields.size(); ++i) {
    const int64_t value = i == kVocabularyField ? std::abs(int64_t{header[i]}) : header[i];
    if (value < 1 || value > kFields[i].max) {
      return std::string("header field ") + kFields[i].name + " at offset " +
             std::to_string(4 * i) + " is " + std::to_string(header[i]) + ", expected 1.." +
             std::to_string(kFields[i].max);
    }
  }
  const auto [dim, hidden_dim, layers, heads, kv_heads, vocab_size, max_positions] = header;
  if (dim % (2 * heads) != 0) {
    return "dim " + std::to_string(dim) + " is not an even multiple of heads " +
           std::to_string(heads);
  }
  if (heads % kv_heads != 0) {
    return "heads " + std::to_string(heads) + " is not a multiple of kv_heads " +
           std::to_string(kv_heads);
  }
  return "";
}

}  // namespace

size_t Checkpoint::LayOut() {
  const auto size = [](int value) { return static_cast<size_t>(value); };
  const size_t dim = size(config_.dim);
  const size_t hidden = size(config_.hidden_dim);
  const size_t layers = size(config_.layers);
  const size_t kv_dim = size(config_.kv_dim());
  const size_t vocab = size(config_.vocab_size);

  size_t end = 0;
  const auto place = [&end](Tensor* tensor, size_t count, size_t floats) {
    *tensor = {end, floats};
    end += count * floats;
  };
  place(&embedding_, 1, vocab * dim);
  place(&attention_norm_, layers, dim);
  place(&wq_, layers, dim * dim);
  place(&wk_, layers, kv_dim * dim);
  place(&wv_, layers, kv_dim * dim);
  place(&wo_, layers, dim * dim);
  place(&ffn_norm_, layers, dim);
  place(&w1_, layers, hidden * dim);
  place(&w2_, layers, dim * hidden);
  place(&w3_, layers, hidden * dim);
  place(&final_norm_, 1, dim);
  place(&rotary_, 1, size(config_.max_positions) * size(config_.head_dim()));
  if (config_.shared_classifier) {
    classifier_ = embedding_;
  } else {
    place(&classifier_, 1, vocab * dim);
  }
  return end;
}

size_t Checkpoint::parameter_count() const { return values_.size() - rotary_.size; }

std::optional<Checkpoint> Checkpoint::Load(const std::string& path, std::string* error) {
  const auto fail = [&](const std::string& message) {
    *error = "checkpoint " + path + ": " + message;
    return std::nullopt;
  };
  InputFile file(path);
  if (!file.ok()) {
    return fail(file.error());
  }
  Header header;
  if (!file.Read(header.data(), sizeof(header))) {
    return fail("header: " + file.error());
  }
  if (const std::string problem = HeaderProblem(header); !problem.empty()) {
    return fail(problem);
  }

  Checkpoint checkpoint;
  checkpoint.config_ = {.dim = header[0],
                        .hidden_dim = header[1],
                        .layers = header[2],
                        .heads = header[3],
                        .kv_heads = header[4],
                        .vocab_size = std::abs(header[5]),
                        .max_positions = header[6],
                        .shared_classifier = header[5] > 0};
  const size_t floats = checkpoint.LayOut();
  const size_t expected_bytes = sizeof(header) + floats * sizeof(float);
  if (file.size_bytes() != expected_bytes) {
    return fail("file holds " + std::to_string(file.size_bytes()) + " bytes, its header asks for " +
                std::to_string(expected_bytes));
  }
  checkpoint.values_.resize(floats);
  if (!file.Read(checkpoint.values_.data(), floats * sizeof(float))) {
    return fail(file.error());
  }
  for (size_t i = 0; i < floats; ++i) {
    if (!std::isfinite(checkpoint.values_[i])) {
      return fail("weight at offset " + std::to_string(sizeof(header) + i * sizeof(float)) +
                  " is not finite");
    }
  }
  return checkpoint;
}

}  // namespace cairn::llama
