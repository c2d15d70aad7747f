// SPDX-License-Identifier: Apache-2.0
//
// Property: a token block gives back its tokens, is never larger than they are plus a header, and a
// damaged one gives an error or other tokens, never a fault. Method: ids of every width, text-like
// and random; the example of FORMAT.md; every bit of a block flipped, every truncation.
#include "base/codec/token_block.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/base/kv_samples.h"

namespace cairn {
namespace {

std::vector<uint32_t> RandomTokens(size_t count, uint32_t below, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random() % below);
  return tokens;
}

// Phrases from a short list, one after the other.
std::vector<uint32_t> TextLikeTokens(size_t count, uint32_t below) {
  std::mt19937_64 random(5);
  const std::vector<uint32_t> words = RandomTokens(600, below, 6);
  std::vector<uint32_t> tokens;
  while (tokens.size() < count) {
    const size_t begin = random() % (words.size() - 8), length = 2 + random() % 6;
    for (size_t i = 0; i < length; ++i) tokens.push_back(words[begin + i]);
  }
  tokens.resize(count);
  return tokens;
}

void ExpectRoundTrip(const std::vector<uint32_t>& tokens, int level) {
  const auto block = EncodeTokens(tokens, level);
  ASSERT_TRUE(block.ok()) << block.status().ToString();
  EXPECT_LE(block->size(), kTokenBlockHeaderBytes + tokens.size() * sizeof(uint32_t));
  std::vector<uint32_t> back(tokens.size(), 77);
  const Status status = DecodeTokens(*block, back);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(back, tokens);
}

TEST(TokenBlock, GivesBackIdsOfEveryWidth) {
  for (const size_t count : {0, 1, 2, 3, 100, 4096}) {
    for (const uint32_t below : {1u, 1152u, 65'536u, 65'537u, 128'256u, 0xffff'ffffu}) {
      SCOPED_TRACE(std::to_string(count) + " tokens below " + std::to_string(below));
      ExpectRoundTrip(RandomTokens(count, below, count + below), kDefaultTokenLevel);
      ExpectRoundTrip(TextLikeTokens(count, below), kDefaultTokenLevel);
    }
  }
  ExpectRoundTrip({0xffff'ffff, 0, 0x1'0000, 0xffff}, kDefaultTokenLevel);
}

TEST(TokenBlock, LevelIsAParameter) {
  const std::vector<uint32_t> tokens = TextLikeTokens(4096, 128'256);
  for (const int level : {-5, 1, 3, 19}) ExpectRoundTrip(tokens, level);
  EXPECT_LT(EncodeTokens(tokens, 19)->size(), EncodeTokens(tokens, -5)->size());
  EXPECT_LT(EncodeTokens(tokens)->size(), tokens.size() * sizeof(uint32_t) / 3);
  const auto refused = EncodeTokens(tokens, 1000);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("1000"), std::string::npos);
}

// The example of base/codec/FORMAT.md.
TEST(TokenBlock, ExampleOfTheFormatDocument) {
  const std::vector<std::byte> example = testing::ExampleBytes("### Example of a token block");
  const std::vector<uint32_t> tokens = {5, 128'000, 1};
  EXPECT_EQ(*EncodeTokens(tokens), example);
  std::vector<uint32_t> back(3);
  ASSERT_TRUE(DecodeTokens(example, back).ok());
  EXPECT_EQ(back, tokens);
}

StatusCode Decode(const std::vector<std::byte>& block, size_t count, std::string* message) {
  // The exact size, so that the sanitizer sees the first byte beyond.
  std::vector<uint32_t> tokens(count);
  const Status status = DecodeTokens(block, tokens);
  *message = status.message();
  return status.code();
}

TEST(TokenBlock, NamesWhatIsWrong) {
  const std::vector<std::byte> stored = *EncodeTokens(std::vector<uint32_t>{5, 128'000, 1});
  const std::vector<std::byte> packed = *EncodeTokens(TextLikeTokens(500, 1000));
  struct Case {
    std::vector<std::byte> block;
    size_t count;
    StatusCode code;
    const char* says;
  };
  const auto with = [](std::vector<std::byte> block, size_t at, int value) {
    block[at] = static_cast<std::byte>(value);
    return block;
  };
  const auto cut = [](std::vector<std::byte> block, size_t by) {
    block.resize(block.size() - by);
    return block;
  };
  std::vector<std::byte> shorter = cut(stored, 2);
  shorter[8] = std::byte{10};
  std::vector<std::byte> foreign = with(packed, 1, 2);  // The planes are of half the size.
  const Case cases[] = {
      {{}, 3, StatusCode::kCorruption, "0 bytes"},
      {with(stored, 0, 2), 3, StatusCode::kUnsupportedFormat, "codec 2"},
      {with(stored, 1, 0), 3, StatusCode::kCorruption, "0 planes"},
      {with(stored, 3, 1), 3, StatusCode::kCorruption, "reserved bits 256"},
      {stored, 4, StatusCode::kCorruption, "holds 3 tokens, expected are 4"},
      {cut(stored, 1), 3, StatusCode::kCorruption, "12 payload bytes, there are 11"},
      {shorter, 3, StatusCode::kCorruption, "10 bytes instead of 12"},
      {with(packed, 12, 0), 500, StatusCode::kCorruption, "zstd: "},
      {foreign, 500, StatusCode::kCorruption, "zstd gives 1000 bytes of 2000"},
  };
  for (const Case& c : cases) {
    std::string message;
    EXPECT_EQ(Decode(c.block, c.count, &message), c.code) << c.says;
    EXPECT_NE(message.find(c.says), std::string::npos) << c.says << " in: " << message;
  }
}

TEST(TokenBlock, AnyDamageIsSafe) {
  for (const auto& tokens : {TextLikeTokens(300, 128'256), RandomTokens(20, 1000, 1)}) {
    const std::vector<std::byte> block = *EncodeTokens(tokens);
    std::string message;
    for (size_t bit = 0; bit < 8 * block.size(); ++bit) {
      std::vector<std::byte> damaged = block;
      damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      Decode(damaged, tokens.size(), &message);
    }
    for (size_t size = 0; size < block.size(); ++size) {
      EXPECT_NE(Decode({block.begin(), block.begin() + static_cast<ptrdiff_t>(size)}, tokens.size(),
                       &message),
                StatusCode::kOk)
          << size;
    }
  }
}

}  // namespace
}  // namespace cairn
