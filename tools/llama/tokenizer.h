// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer of llama2.c: byte-pair encoding over a list of pieces with scores, with single
// bytes to fall back on.
//
// The file is an int32 (longest piece in bytes) and then, per token, a float32 score, an int32
// length and the piece's bytes. It does not hold the number of tokens; the checkpoint does. Tokens
// 0, 1, 2 are <unk>, <s>, </s>, and token 3 + b stands for the byte b.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cairn::llama {

inline constexpr int32_t kBosToken = 1;
inline constexpr int32_t kEosToken = 2;

// Immutable after loading, hence safe to share between threads.
class Tokenizer {
 public:
  // On failure returns nothing and sets `*error` to one line that names the file, the offset and
  // what is wrong there.
  static std::optional<Tokenizer> Load(const std::string& path, int vocab_size, std::string* error);

  int vocab_size() const { return static_cast<int>(pieces_.size()); }

  // The tokens of a text that starts a sequence: <s>, then the text with a space put before it (so
  // that its first word is like any other word). Any bytes are accepted; those without a piece
  // become byte tokens. O(n log n).
  std::vector<int32_t> Encode(std::string_view text) const;

  // The tokens of a text that follows other text: neither <s> nor the space.
  std::vector<int32_t> EncodeContinuation(std::string_view text) const;

  // The text of `token` when it follows `previous`. The first three tokens have no text, nor has
  // one outside the vocabulary; a space that directly follows <s> is the one that Encode put there
  // and is dropped.
  std::string_view Decode(int32_t previous, int32_t token) const;

  // The text of a sequence: Decode(Encode(text)) == text for any bytes.
  std::string Decode(std::span<const int32_t> tokens) const;

 private:
  int32_t Find(std::string_view piece) const;
  std::vector<int32_t> EncodeCharacters(std::string_view text) const;
  void Merge(std::vector<int32_t>* tokens) const;

  std::vector<std::string> pieces_;
  std::vector<float> scores_;
  std::unordered_map<std::string, int32_t> ids_;  // of what may be the result of a merge
};

}  // namespace cairn::llama
