// SPDX-License-Identifier: Apache-2.0
//
// Property: encoding is the greedy merge of llama2.c, decoding gives the same bytes back, and a
// damaged file is refused with a message. Method: a tokenizer small enough to work out by hand;
// random texts against a direct transcription of the greedy rule; random bytes through the shipped
// tokenizer; files cut at every length and fields damaged.

#include "tools/llama/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/llama/test_files.h"
#include "tools/llama/model_files.h"

namespace cairn::llama {
namespace {

using Pieces = std::vector<std::pair<std::string, float>>;

// The file of a tokenizer with these pieces behind the 259 fixed ones.
std::string TokenizerBytes(const Pieces& pieces) {
  Pieces all = {{"<unk>", 0.0f}, {"\n<s>\n", 0.0f}, {"\n</s>\n", 0.0f}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(byte));
    all.emplace_back(name, 0.0f);
  }
  all.insert(all.end(), pieces.begin(), pieces.end());
  size_t longest = 0;
  for (const auto& [piece, score] : all) {
    longest = std::max(longest, piece.size());
  }
  std::string bytes;
  AppendValue(&bytes, static_cast<int32_t>(longest));
  for (const auto& [piece, score] : all) {
    AppendValue(&bytes, score);
    AppendValue(&bytes, static_cast<int32_t>(piece.size()));
    bytes += piece;
  }
  return bytes;
}

const Pieces kPieces = {{" ", -9},  {"a", -9},  {"b", -9},   {"c", -9},  {"\xc3\xa9", -9},
                        {"ab", -2}, {"bc", -1}, {"abc", -3}, {" a", -4}, {"aa", -5}};
constexpr int kVocabSize = 259 + 10;
constexpr int32_t kSpace = 259, kA = 260, kB = 261, kC = 262, kAccent = 263;
constexpr int32_t kAb = 264, kBc = 265, kAbc = 266, kSpaceA = 267, kAa = 268;
constexpr int32_t kByte = 3;

class TokenizerTest : public ::testing::Test {
 protected:
  std::optional<Tokenizer> Load(const std::string& bytes, int vocab_size = kVocabSize) {
    error_.clear();
    return Tokenizer::Load(directory_.Write("tokenizer.bin", bytes), vocab_size, &error_);
  }

  std::string Refusal(const std::string& bytes, int vocab_size = kVocabSize) {
    EXPECT_FALSE(Load(bytes, vocab_size).has_value());
    EXPECT_NE(error_.find(directory_.Path("tokenizer.bin")), std::string::npos) << error_;
    return error_;
  }

  TemporaryDirectory directory_;
  std::string error_;
};

TEST_F(TokenizerTest, KnownEncodings) {
  const std::optional<Tokenizer> tokenizer = Load(TokenizerBytes(kPieces));
  ASSERT_TRUE(tokenizer.has_value()) << error_;
  using Tokens = std::vector<int32_t>;
  EXPECT_EQ(tokenizer->Encode(""), Tokens({kBosToken}));
  EXPECT_EQ(tokenizer->Encode("b"), Tokens({kBosToken, kSpace, kB}));
  // "bc" scores best and is joined first; then "abc" beats " a".
  EXPECT_EQ(tokenizer->Encode("abc"), Tokens({kBosToken, kSpace, kAbc}));
  EXPECT_EQ(tokenizer->EncodeContinuation("bc"), Tokens({kBc}));
  // Equal candidates: the left one first.
  EXPECT_EQ(tokenizer->EncodeContinuation("aaa"), Tokens({kAa, kA}));
  EXPECT_EQ(tokenizer->EncodeContinuation(" aa"), Tokens({kSpaceA, kA}));
  EXPECT_EQ(tokenizer->EncodeContinuation("abab"), Tokens({kAb, kAb}));
  EXPECT_EQ(tokenizer->EncodeContinuation("\xc3\xa9"), Tokens({kAccent}));
  // No piece: bytes, also where UTF-8 is cut or wrong.
  EXPECT_EQ(tokenizer->EncodeContinuation("\xc3\xa8"), Tokens({kByte + 0xc3, kByte + 0xa8}));
  EXPECT_EQ(tokenizer->EncodeContinuation("a\xff"
                                          "c"),
            Tokens({kA, kByte + 0xff, kC}));
  // The name of a byte token is not that token.
  EXPECT_EQ(tokenizer->EncodeContinuation("<0x41>").size(), 6u);
}

TEST_F(TokenizerTest, DecodesTokenByToken) {
  const std::optional<Tokenizer> tokenizer = Load(TokenizerBytes(kPieces));
  ASSERT_TRUE(tokenizer.has_value()) << error_;
  EXPECT_EQ(tokenizer->Decode(kBosToken, kSpaceA), "a");  // the space that Encode put there
  EXPECT_EQ(tokenizer->Decode(kB, kSpaceA), " a");
  EXPECT_EQ(tokenizer->Decode(kB, kByte + 'x'), "x");
  EXPECT_EQ(tokenizer->Decode(kB, kByte), std::string_view("\0", 1));
  for (const int32_t token : {-1, 0, 1, 2, kVocabSize}) {
    EXPECT_EQ(tokenizer->Decode(kB, token), "");
  }
}

// llama2.c's loop as it stands: scan all neighbours, join the best, again.
std::vector<int32_t> GreedyMerge(const Pieces& pieces, const std::string& text) {
  std::map<std::string, int32_t> ids;
  for (size_t i = 0; i < pieces.size(); ++i) {
    ids[pieces[i].first] = static_cast<int32_t>(259 + i);
  }
  std::vector<int32_t> tokens;
  for (const char c : text) {
    tokens.push_back(ids.at(std::string(1, c)));
  }
  while (true) {
    float best_score = -1e10f;
    size_t best = tokens.size();
    int32_t joined = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = ids.find(pieces[static_cast<size_t>(tokens[i] - 259)].first +
                                  pieces[static_cast<size_t>(tokens[i + 1] - 259)].first);
      if (found != ids.end() &&
          pieces[static_cast<size_t>(found->second - 259)].second > best_score) {
        best_score = pieces[static_cast<size_t>(found->second - 259)].second;
        best = i;
        joined = found->second;
      }
    }
    if (best == tokens.size()) {
      return tokens;
    }
    tokens[best] = joined;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST_F(TokenizerTest, AgreesWithTheGreedyRuleOnRandomVocabularies) {
  std::mt19937 generator(7);
  for (int round = 0; round < 50; ++round) {
    Pieces pieces = {{"a", -9}, {"b", -9}, {"c", -9}};
    std::map<std::string, bool> seen = {{"a", true}, {"b", true}, {"c", true}};
    for (int i = 0; i < 25; ++i) {
      std::string piece;
      const size_t length = 2 + generator() % 4;
      while (piece.size() < length) {
        piece += static_cast<char>('a' + generator() % 3);
      }
      if (!std::exchange(seen[piece], true)) {
        pieces.emplace_back(piece, -static_cast<float>(generator() % 8));  // with ties
      }
    }
    const std::optional<Tokenizer> tokenizer =
        Load(TokenizerBytes(pieces), static_cast<int>(259 + pieces.size()));
    ASSERT_TRUE(tokenizer.has_value()) << error_;
    for (int i = 0; i < 40; ++i) {
      std::string text;
      const size_t length = generator() % 60;
      while (text.size() < length) {
        text += static_cast<char>('a' + generator() % 3);
      }
      ASSERT_EQ(tokenizer->EncodeContinuation(text), GreedyMerge(pieces, text)) << text;
    }
  }
}

TEST_F(TokenizerTest, AnyBytesSurviveTheRoundTrip) {
  const std::optional<Tokenizer> small = Load(TokenizerBytes(kPieces));
  const std::optional<Model> shipped =
      LoadModel(CAIRN_LLAMA_DATA_DIR "/model.bin", CAIRN_LLAMA_DATA_DIR "/tokenizer.bin", &error_);
  ASSERT_TRUE(small.has_value() && shipped.has_value()) << error_;
  std::mt19937 generator(3);
  for (int round = 0; round < 500; ++round) {
    std::string text(generator() % 100, '\0');
    for (char& byte : text) {
      // Bytes of every kind, with enough letters and spaces for merges to happen.
      byte =
          generator() % 2 == 0 ? static_cast<char>(generator()) : " theandlord"[generator() % 11];
    }
    for (const Tokenizer* tokenizer : {&*small, &shipped->tokenizer}) {
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
      ASSERT_EQ(tokenizer->Decode(tokenizer->EncodeContinuation(text)), text);
    }
  }
  EXPECT_EQ(small->Decode(small->Encode("  a")), "  a");  // its own leading spaces are kept
}

TEST_F(TokenizerTest, RefusesEveryOtherLength) {
  const std::string bytes = TokenizerBytes(kPieces);
  const std::string path = directory_.Write("cut.bin", bytes);
  for (size_t length = bytes.size(); length-- > 0;) {
    std::filesystem::resize_file(path, length);
    ASSERT_FALSE(Tokenizer::Load(path, kVocabSize, &error_).has_value()) << length;
  }
  EXPECT_NE(Refusal(bytes + "x").find("1 bytes follow"), std::string::npos);
  EXPECT_NE(Refusal(bytes, kVocabSize - 1).find("bytes follow"), std::string::npos);
  EXPECT_NE(Refusal(bytes, kVocabSize + 1).find("token 269"), std::string::npos);
}

TEST_F(TokenizerTest, NamesTheDamagedToken) {
  const std::string good = TokenizerBytes(kPieces);
  const auto with = [&](size_t offset, auto value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
    return bytes;
  };
  const std::string negative = Refusal(with(8, int32_t{-1}));
  EXPECT_NE(negative.find("token 0 at offset 4"), std::string::npos) << negative;
  EXPECT_NE(negative.find("length is -1"), std::string::npos) << negative;
  EXPECT_NE(Refusal(with(8, int32_t{0x7fffffff})).find("length is"), std::string::npos);
  EXPECT_NE(Refusal(with(4, std::numeric_limits<float>::infinity())).find("score"),
            std::string::npos);
}

TEST_F(TokenizerTest, RefusesAVocabularyWithoutByteTokensAndAMissingFile) {
  EXPECT_NE(Refusal(TokenizerBytes(kPieces), 258).find("256 byte tokens"), std::string::npos);
  EXPECT_FALSE(Tokenizer::Load(directory_.Path("missing"), kVocabSize, &error_).has_value());
  EXPECT_NE(error_.find("No such file"), std::string::npos) << error_;
}

}  // namespace
}  // namespace cairn::llama
