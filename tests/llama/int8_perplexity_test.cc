// SPDX-License-Identifier: Apache-2.0
//
// Property: a model whose cache went through int8 frames predicts a text that it was not trained on
// nearly as well: its perplexity rises by less than 1 %. Method: the shipped model reads the text
// page by page; behind it every page of K and V is quantised, packed and unpacked, so that what
// follows attends to nothing else.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/codec/kv_frame.h"
#include "tools/llama/model_files.h"
#include "tools/llama/perplexity.h"
#include "tools/llama/transformer.h"

namespace cairn::llama {
namespace {

constexpr int kPage = 64;  // The smallest page of a store: the most of the context is quantised.
constexpr int kPages = 40;

struct Packed {
  uint64_t raw = 0, stored = 0;
};

// One plane's page through the codec.
void Pass(uint16_t* first, const KvCache& cache, FrameScales scales, Packed* packed) {
  const auto channels = static_cast<uint32_t>(cache.head_dim());
  const FrameShape shape{kPage, channels, Dtype::kBf16};
  std::vector<std::byte> rows(shape.raw_bytes()), frame(MaxFrameBytes(shape));
  const size_t row_bytes = size_t{2} * channels;
  for (size_t row = 0; row < kPage; ++row) {
    std::memcpy(&rows[row * row_bytes], first + row * cache.position_stride(), row_bytes);
  }
  EXPECT_TRUE(QuantiseFrame(shape, scales, rows));
  frame.resize(EncodeFrame(shape, rows, frame, {.scales = scales}));
  EXPECT_EQ(ReadFrameHeader(frame)->codec, FrameCodec::kInt8);
  EXPECT_TRUE(DecodeFrame(shape, frame, rows).ok());
  for (size_t row = 0; row < kPage; ++row) {
    std::memcpy(first + row * cache.position_stride(), &rows[row * row_bytes], row_bytes);
  }
  packed->raw += shape.raw_bytes();
  packed->stored += frame.size();
}

double Perplexity(const Model& model, std::span<const int32_t> tokens, Packed* packed) {
  Transformer<float> transformer(model.checkpoint);
  KvCache cache(model.checkpoint.config(), kPage * kPages);
  TextLoss loss;
  for (int page = 0; page < kPages; ++page) {
    const int at = page * kPage;
    const auto begin = static_cast<size_t>(at);
    const auto logits =
        transformer.Forward(tokens.subspan(begin, kPage), at, LogitsOf::kAllRows, &cache);
    AddRowLosses(logits, tokens.subspan(begin + 1, kPage), &loss);
    for (int layer = 0; packed != nullptr && layer < cache.layers(); ++layer) {
      for (int head = 0; head < cache.kv_heads(); ++head) {
        Pass(cache.K(layer, at, head), cache, FrameScales::kChannel, packed);
        Pass(cache.V(layer, at, head), cache, FrameScales::kRow, packed);
      }
    }
  }
  return loss.perplexity();
}

TEST(Int8Perplexity, RisesByLessThanOnePercent) {
  std::string error;
  const auto model =
      LoadModel(CAIRN_LLAMA_DATA_DIR "/model.bin", CAIRN_LLAMA_DATA_DIR "/tokenizer.bin", &error);
  ASSERT_TRUE(model.has_value()) << error;
  const auto text = ReadFile(HeldOutTextPath(), &error);
  ASSERT_TRUE(text.has_value()) << error;
  std::vector<int32_t> tokens = model->tokenizer.Encode(*text);
  ASSERT_GT(tokens.size(), static_cast<size_t>(kPage) * kPages);
  tokens.resize(static_cast<size_t>(kPage) * kPages + 1);
  tokens[0] = kBosToken;
  const double exact = Perplexity(*model, tokens, nullptr);
  Packed packed;
  const double quantised = Perplexity(*model, tokens, &packed);
  std::printf("perplexity of %d held-out tokens: %.4f with bf16, %.4f with int8 (%+.3f %%)\n",
              kPage * kPages, exact, quantised, 100 * (quantised / exact - 1));
  std::printf("stored: %.4f of the bf16 bytes\n",
              static_cast<double>(packed.stored) / static_cast<double>(packed.raw));
  EXPECT_NE(exact, quantised) << "nothing was quantised";
  EXPECT_LT(quantised, 1.01 * exact);
  EXPECT_LT(exact, 20) << "the model says nothing about this text";
}

}  // namespace
}  // namespace cairn::llama
