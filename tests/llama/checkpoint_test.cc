// SPDX-License-Identifier: Apache-2.0
//
// Property: a checkpoint loads exactly as written, or is refused with a message that says what is
// wrong. Method: random small checkpoints with and without a classifier of their own; each header
// field damaged, the file cut at every length and extended, a weight made NaN.

#include "tools/llama/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/llama/test_files.h"

namespace cairn::llama {
namespace {

constexpr Config kSmall = {.dim = 8,
                           .hidden_dim = 5,
                           .layers = 2,
                           .heads = 2,
                           .kv_heads = 1,
                           .vocab_size = 11,
                           .max_positions = 6};

class CheckpointTest : public ::testing::Test {
 protected:
  std::optional<Checkpoint> Load(const std::string& bytes) {
    error_.clear();
    return Checkpoint::Load(directory_.Write("model.bin", bytes), &error_);
  }

  // The message of a load that must fail; it always names the file.
  std::string Refusal(const std::string& bytes) {
    EXPECT_FALSE(Load(bytes).has_value());
    EXPECT_NE(error_.find(directory_.Path("model.bin")), std::string::npos) << error_;
    return error_;
  }

  std::string RefusalOfField(size_t field, int32_t value) {
    std::string bytes = RandomCheckpointBytes(kSmall, 1);
    std::memcpy(bytes.data() + 4 * field, &value, sizeof(value));
    return Refusal(bytes);
  }

  TemporaryDirectory directory_;
  std::string error_;
};

TEST_F(CheckpointTest, TensorsLieWhereTheFormatPutsThem) {
  for (const bool shared : {true, false}) {
    Config config = kSmall;
    config.shared_classifier = shared;
    const std::string bytes = RandomCheckpointBytes(config, 1);
    const std::optional<Checkpoint> loaded = Load(bytes);
    ASSERT_TRUE(loaded.has_value()) << error_;
    EXPECT_EQ(loaded->config().vocab_size, 11);
    EXPECT_EQ(loaded->config().shared_classifier, shared);

    size_t offset = 28;
    const auto expect_next = [&](std::span<const float> tensor, size_t floats) {
      ASSERT_EQ(tensor.size(), floats);
      EXPECT_EQ(std::memcmp(tensor.data(), bytes.data() + offset, floats * sizeof(float)), 0)
          << offset;
      offset += floats * sizeof(float);
    };
    expect_next(loaded->embedding(), 11 * 8);
    for (int i = 0; i < 2; ++i) expect_next(loaded->attention_norm(i), 8);
    for (int i = 0; i < 2; ++i) expect_next(loaded->wq(i), 8 * 8);
    for (int i = 0; i < 2; ++i) expect_next(loaded->wk(i), 4 * 8);
    for (int i = 0; i < 2; ++i) expect_next(loaded->wv(i), 4 * 8);
    for (int i = 0; i < 2; ++i) expect_next(loaded->wo(i), 8 * 8);
    for (int i = 0; i < 2; ++i) expect_next(loaded->ffn_norm(i), 8);
    for (int i = 0; i < 2; ++i) expect_next(loaded->w1(i), 5 * 8);
    for (int i = 0; i < 2; ++i) expect_next(loaded->w2(i), 8 * 5);
    for (int i = 0; i < 2; ++i) expect_next(loaded->w3(i), 5 * 8);
    expect_next(loaded->final_norm(), 8);
    EXPECT_EQ(loaded->parameter_count(), (offset - 28) / 4 + (shared ? 0 : 88));
    offset += 6 * 4 * sizeof(float);  // the rotary tables
    if (shared) {
      EXPECT_EQ(loaded->classifier().data(), loaded->embedding().data());
    } else {
      expect_next(loaded->classifier(), 11 * 8);
    }
    EXPECT_EQ(offset, bytes.size());
  }
}

TEST_F(CheckpointTest, RefusesEveryOtherLength) {
  const std::string bytes = RandomCheckpointBytes(kSmall, 1);
  const std::string path = directory_.Write("cut.bin", bytes);
  for (size_t length = bytes.size(); length-- > 0;) {
    std::filesystem::resize_file(path, length);
    ASSERT_FALSE(Checkpoint::Load(path, &error_).has_value()) << length;
    ASSERT_NE(error_.find(std::to_string(length)), std::string::npos) << error_;
  }
  const std::string message = Refusal(bytes + '\0');
  EXPECT_NE(message.find(std::to_string(bytes.size())), std::string::npos) << message;
}

TEST_F(CheckpointTest, NamesTheDamagedHeaderField) {
  const char* names[] = {"dim",      "hidden_dim", "layers",   "heads",
                         "kv_heads", "vocabulary", "positions"};
  for (size_t field = 0; field < 7; ++field) {
    for (const int32_t value :
         {0, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
      const std::string message = RefusalOfField(field, value);
      EXPECT_NE(message.find(names[field]), std::string::npos) << message;
      EXPECT_NE(message.find(std::to_string(value)), std::string::npos) << message;
    }
  }
}

TEST_F(CheckpointTest, RefusesHeadsThatDoNotDivide) {
  EXPECT_NE(RefusalOfField(3, 3).find("not an even multiple of heads 3"), std::string::npos);
  EXPECT_NE(RefusalOfField(3, 8).find("not an even multiple of heads 8"),
            std::string::npos);  // head_dim 1
  EXPECT_NE(RefusalOfField(4, 3).find("not a multiple of kv_heads 3"), std::string::npos);
}

TEST_F(CheckpointTest, RefusesLaterExportVersionsByName) {
  std::string bytes = RandomCheckpointBytes(kSmall, 1);
  const int32_t magic_and_version[] = {0x616b3432, 2};
  std::memcpy(bytes.data(), magic_and_version, sizeof(magic_and_version));
  EXPECT_NE(Refusal(bytes).find("version 2"), std::string::npos);
}

TEST_F(CheckpointTest, RefusesAWeightThatIsNotFinite) {
  std::string bytes = RandomCheckpointBytes(kSmall, 1);
  const float bad = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + 28 + 40, &bad, sizeof(bad));
  EXPECT_NE(Refusal(bytes).find("offset 68 "), std::string::npos);
}

TEST_F(CheckpointTest, RefusesWhatIsNotAReadableFile) {
  EXPECT_FALSE(Checkpoint::Load(directory_.Path("missing.bin"), &error_).has_value());
  EXPECT_NE(error_.find("No such file"), std::string::npos) << error_;
  EXPECT_FALSE(Checkpoint::Load(directory_.Path(""), &error_).has_value());  // a directory
  EXPECT_NE(error_.find("cannot read"), std::string::npos) << error_;
}

}  // namespace
}  // namespace cairn::llama
