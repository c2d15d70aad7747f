// SPDX-License-Identifier: Apache-2.0
//
// Property: the model in tools/llama/data has learnt its language, up to its full context, and
// decodes it with the same bits as it prefills. Method: loss on books it was not trained on, by
// position; generated words looked up in those books; one conversation computed in several ways.
// The environment does not choose another model here.

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/llama/test_files.h"
#include "tools/llama/model_files.h"
#include "tools/llama/perplexity.h"
#include "tools/llama/sampler.h"
#include "tools/llama/transformer.h"

namespace cairn::llama {
namespace {

// Nats per token over the first 1500 held-out tokens; 2.566 was measured.
constexpr double kHeldOutLossBound = 2.65;

class ShippedModelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string error;
    model_ =
        LoadModel(CAIRN_LLAMA_DATA_DIR "/model.bin", CAIRN_LLAMA_DATA_DIR "/tokenizer.bin", &error);
    ASSERT_TRUE(model_.has_value()) << error;
    const std::optional<std::string> text = ReadFile(HeldOutTextPath(), &error);
    ASSERT_TRUE(text.has_value()) << error;
    text_ = *text;
    tokens_ = model_->tokenizer.Encode(text_);
  }
  static void TearDownTestSuite() { model_.reset(); }

  static const Config& config() { return model_->checkpoint.config(); }

  // Loss of the held-out tokens in [begin, end), each given what stands before it from
  // `context_begin` on.
  static double Loss(size_t context_begin, size_t begin, size_t end) {
    std::vector<int32_t> window(tokens_.begin() + static_cast<std::ptrdiff_t>(context_begin),
                                tokens_.begin() + static_cast<std::ptrdiff_t>(end));
    window[0] = kBosToken;
    Transformer<float> transformer(model_->checkpoint);
    KvCache cache(config(), static_cast<int>(window.size()));
    TextLoss loss;
    AddWindowLoss<float>(window, begin - context_begin, &transformer, &cache, &loss);
    return loss.nats / static_cast<double>(loss.tokens);
  }

  static std::vector<int32_t> Generate(const std::string& prompt, int count,
                                       SamplerOptions options) {
    Transformer<float> transformer(model_->checkpoint);
    std::vector<int32_t> tokens = model_->tokenizer.Encode(prompt);
    KvCache cache(config(), static_cast<int>(tokens.size()) + count);
    Sampler sampler(options, {.seed = 7});
    auto logits = transformer.Forward(tokens, 0, LogitsOf::kLastRow, &cache);
    for (int i = 0; i < count; ++i) {
      tokens.push_back(sampler.Sample(logits));
      logits = transformer.Forward({&tokens.back(), 1}, static_cast<int>(tokens.size()) - 1,
                                   LogitsOf::kLastRow, &cache);
    }
    return tokens;
  }

  static inline std::optional<Model> model_;
  static inline std::string text_;
  static inline std::vector<int32_t> tokens_;
};

TEST_F(ShippedModelTest, HasTheShapeThatTheDocumentsState) {
  EXPECT_EQ(config().head_dim(), 64);
  EXPECT_EQ(config().kv_heads, 2);
  EXPECT_EQ(config().heads, 4);
  EXPECT_EQ(config().layers, 4);
  EXPECT_EQ(config().max_positions, 4096);
  EXPECT_EQ(model_->checkpoint.parameter_count(), 1722624u);
  EXPECT_LE(Content(CAIRN_LLAMA_DATA_DIR "/model.bin").size(), 8000000u);
}

TEST_F(ShippedModelTest, PredictsBooksItWasNotTrainedOn) {
  const double uniform = std::log(config().vocab_size);
  const double loss = Loss(0, 1, 1500);
  EXPECT_LT(loss, kHeldOutLossBound);
  EXPECT_GT(loss, 1.5) << "too good to be held out";
  EXPECT_LT(loss, uniform / 2);
}

// The same tokens twice: once near the start of the context and once near its end. (A model that
// was trained on 512 positions only is 1.1 nats worse there.)
TEST_F(ShippedModelTest, LongContextIsNoWorseThanShort) {
  const double near = Loss(3584, 3840, 4096);
  const double far = Loss(0, 3840, 4096);
  EXPECT_LT(far, near + 0.01);
}

TEST_F(ShippedModelTest, TokenizerCompressesItsLanguage) {
  EXPECT_EQ(model_->tokenizer.Decode(tokens_), text_);
  EXPECT_LT(static_cast<double>(tokens_.size()) * 2.8, static_cast<double>(text_.size()));
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  words.pop_back();  // cut off at the end, or empty
  return words;
}

TEST_F(ShippedModelTest, GeneratesWordsOfItsLanguage) {
  const std::vector<std::string> known_words = Words(text_);
  const std::set<std::string> known(known_words.begin(), known_words.end());
  const std::string text = model_->tokenizer.Decode(
      Generate("And it came to pass", 400, {.temperature = 0.8f, .top_p = 0.95f}));
  const std::vector<std::string> words = Words(text);
  size_t found = 0;
  for (const std::string& word : words) {
    found += known.count(word);
  }
  EXPECT_GT(words.size(), 150u) << text;
  EXPECT_GT(static_cast<double>(found), 0.8 * static_cast<double>(words.size())) << text;
}

TEST_F(ShippedModelTest, PrefillEqualsDecodeBitwise) {
  const std::vector<int32_t> tokens(tokens_.begin(), tokens_.begin() + 300);
  Transformer<float> transformer(model_->checkpoint);
  KvCache prefilled(config(), 300);
  const auto all = transformer.Forward(tokens, 0, LogitsOf::kAllRows, &prefilled);
  const std::vector<float> expected(all.begin(), all.end());
  KvCache decoded(config(), 300);
  const size_t vocab_size = static_cast<size_t>(config().vocab_size);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row =
        transformer.Forward({&tokens[i], 1}, static_cast<int>(i), LogitsOf::kLastRow, &decoded);
    ASSERT_EQ(std::memcmp(row.data(), &expected[i * vocab_size], vocab_size * sizeof(float)), 0)
        << i;
  }
  EXPECT_EQ(std::memcmp(prefilled.K(0, 0, 0), decoded.K(0, 0, 0), decoded.size_bytes() / 2), 0);
  EXPECT_EQ(std::memcmp(prefilled.V(0, 0, 0), decoded.V(0, 0, 0), decoded.size_bytes() / 2), 0);
}

TEST_F(ShippedModelTest, FloatAndDoubleAgree) {
  const std::vector<int32_t> tokens(tokens_.begin(), tokens_.begin() + 100);
  Transformer<float> narrow(model_->checkpoint);
  Transformer<double> wide(model_->checkpoint);
  KvCache narrow_cache(config(), 100);
  KvCache wide_cache(config(), 100);
  const auto a = narrow.Forward(tokens, 0, LogitsOf::kAllRows, &narrow_cache);
  const auto b = wide.Forward(tokens, 0, LogitsOf::kAllRows, &wide_cache);
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  EXPECT_LT(worst, 0.2);
  EXPECT_GT(worst, 0);
}

// Interrupted in the middle, with everything but cache, tokens and sampler state thrown away.
TEST_F(ShippedModelTest, AnInterruptedConversationContinuesAsIfItWasNot) {
  const SamplerOptions options = {.temperature = 1.0f, .top_p = 0.9f};
  const std::vector<int32_t> expected = Generate("In the beginning", 120, options);
  std::vector<int32_t> tokens = model_->tokenizer.Encode("In the beginning");
  KvCache cache(config(), static_cast<int>(expected.size()));
  Sampler::State state = {.seed = 7};
  size_t computed = 0;
  while (tokens.size() < expected.size()) {
    Transformer<float> transformer(model_->checkpoint);
    Sampler sampler(options, state);
    for (int i = 0; i < 40 && tokens.size() < expected.size(); ++i) {
      const auto logits =
          transformer.Forward(std::span(tokens).subspan(computed), static_cast<int>(computed),
                              LogitsOf::kLastRow, &cache);
      computed = tokens.size();
      tokens.push_back(sampler.Sample(logits));
    }
    state = sampler.state();
  }
  EXPECT_EQ(tokens, expected);
}

TEST(ModelFiles, TheEnvironmentChoosesTheModel) {
  const std::string shipped = CAIRN_LLAMA_DATA_DIR "/model.bin";
  ASSERT_EQ(unsetenv("CAIRN_LLAMA_CHECKPOINT"), 0);
  EXPECT_EQ(DefaultCheckpointPath(), shipped);
  ASSERT_EQ(setenv("CAIRN_LLAMA_CHECKPOINT", "/elsewhere/model.bin", 1), 0);
  ASSERT_EQ(setenv("CAIRN_LLAMA_TOKENIZER", "/elsewhere/tokenizer.bin", 1), 0);
  EXPECT_EQ(DefaultCheckpointPath(), "/elsewhere/model.bin");
  EXPECT_EQ(DefaultTokenizerPath(), "/elsewhere/tokenizer.bin");
  ASSERT_EQ(unsetenv("CAIRN_LLAMA_CHECKPOINT"), 0);
  ASSERT_EQ(unsetenv("CAIRN_LLAMA_TOKENIZER"), 0);
}

TEST(ModelFiles, RefusesATokenizerOfAnotherModel) {
  const TemporaryDirectory directory;
  const Config small = {.dim = 8,
                        .hidden_dim = 4,
                        .layers = 1,
                        .heads = 1,
                        .kv_heads = 1,
                        .vocab_size = 300,
                        .max_positions = 4};
  std::string error;
  EXPECT_FALSE(LoadModel(directory.Write("model.bin", RandomCheckpointBytes(small, 1)),
                         CAIRN_LLAMA_DATA_DIR "/tokenizer.bin", &error)
                   .has_value());
  EXPECT_NE(error.find("bytes follow the last of 300 tokens"), std::string::npos) << error;
  EXPECT_FALSE(LoadModel(directory.Path("missing"), CAIRN_LLAMA_DATA_DIR "/tokenizer.bin", &error)
                   .has_value());
  EXPECT_NE(error.find("missing"), std::string::npos) << error;
}

}  // namespace
}  // namespace cairn::llama
