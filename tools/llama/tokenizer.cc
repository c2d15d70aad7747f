// SPDX-License-Identifier: Apache-2.0

#include "tools/llama/tokenizer.h"

#include <cmath>
#include <queue>

#include "tools/llama/file.h"

namespace cairn::llama {
namespace {

constexpr int32_t kNoToken = -1;
constexpr int32_t kFirstByteToken = 3;
constexpr int32_t kFirstTextToken = kFirstByteToken + 256;

// A pair of neighbours that could be joined. Best score first, then leftmost: the order in which
// llama2.c's scan of the whole text would find them.
struct Candidate {
  float score;
  size_t left;
  size_t right;
  int32_t left_token;
  int32_t right_token;
  int32_t joined;

  bool operator<(const Candidate& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

}  // namespace

std::optional<Tokenizer> Tokenizer::Load(const std::string& path, int vocab_size,
                                         std::string* error) {
  const auto fail = [&](const std::string& message) {
    *error = "tokenizer " + path + ": " + message;
    return std::nullopt;
  };
  if (vocab_size < kFirstTextToken) {
    return fail("a vocabulary of " + std::to_string(vocab_size) +
                " has no room for the 256 byte tokens");
  }
  InputFile file(path);
  if (!file.ok()) {
    return fail(file.error());
  }
  int32_t longest = 0;
  if (!file.Read(&longest, sizeof(longest))) {
    return fail(file.error());
  }

  Tokenizer tokenizer;
  for (int32_t token = 0; token < vocab_size; ++token) {
    const std::string where =
        "token " + std::to_string(token) + " at offset " + std::to_string(file.offset());
    float score = 0;
    int32_t length = 0;
    if (!file.Read(&score, sizeof(score)) || !file.Read(&length, sizeof(length))) {
      return fail(where + " of " + std::to_string(vocab_size) + ": " + file.error());
    }
    if (!std::isfinite(score)) {
      return fail(where + ": its score is not finite");
    }
    if (length < 0 || length > longest || static_cast<uint64_t>(length) > file.remaining_bytes()) {
      return fail(where + ": its length is " + std::to_string(length) + ", expected 0.." +
                  std::to_string(longest) + " and at most the " +
                  std::to_string(file.remaining_bytes()) + " bytes that follow");
    }
    std::string piece(static_cast<size_t>(length), '\0');
    if (!file.Read(piece.data(), piece.size())) {
      return fail(where + ": " + file.error());
    }
    if (token < kFirstByteToken) {
      piece.clear();
    } else if (token < kFirstTextToken) {
      piece.assign(1, static_cast<char>(token - kFirstByteToken));
    } else {
      tokenizer.ids_.emplace(piece, token);
    }
    tokenizer.pieces_.push_back(std::move(piece));
    tokenizer.scores_.push_back(score);
  }
  if (file.remaining_bytes() != 0) {
    return fail(std::to_string(file.remaining_bytes()) + " bytes follow the last of " +
                std::to_string(vocab_size) + " tokens at offset " + std::to_string(file.offset()));
  }
  return tokenizer;
}

int32_t Tokenizer::Find(std::string_view piece) const {
  const auto found = ids_.find(std::string(piece));
  return found == ids_.end() ? kNoToken : found->second;
}

std::vector<int32_t> Tokenizer::EncodeCharacters(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (size_t begin = 0; begin < text.size();) {
    // One byte and the UTF-8 continuation bytes behind it, four bytes at most, whether or not that
    // is valid UTF-8.
    size_t end = begin + 1;
    while (end < text.size() && end - begin < 4 &&
           (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) {
      ++end;
    }
    const std::string_view character = text.substr(begin, end - begin);
    if (const int32_t token = Find(character); token != kNoToken) {
      tokens.push_back(token);
    } else {
      for (const char byte : character) {
        tokens.push_back(kFirstByteToken + static_cast<uint8_t>(byte));
      }
    }
    begin = end;
  }
  return tokens;
}

void Tokenizer::Merge(std::vector<int32_t>* tokens) const {
  // A linked list over the array: joining puts the new token on the left and takes the right one
  // out.
  const size_t count = tokens->size();
  std::vector<size_t> previous(count), next(count);
  for (size_t i = 0; i < count; ++i) {
    previous[i] = i - 1;  // wraps at 0, and is never followed from there
    next[i] = i + 1;
  }
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](size_t left, size_t right) {
    const int32_t left_token = (*tokens)[left];
    const int32_t right_token = (*tokens)[right];
    if (left_token < kFirstTextToken || right_token < kFirstTextToken) {
      return;  // bytes stay bytes
    }
    const int32_t joined =
        Find(pieces_[static_cast<size_t>(left_token)] + pieces_[static_cast<size_t>(right_token)]);
    if (joined != kNoToken) {
      candidates.push(
          {scores_[static_cast<size_t>(joined)], left, right, left_token, right_token, joined});
    }
  };
  for (size_t i = 0; i + 1 < count; ++i) {
    consider(i, i + 1);
  }
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    // Candidates are not withdrawn when one of their sides is joined with another; they are
    // recognised here.
    if ((*tokens)[best.left] != best.left_token || (*tokens)[best.right] != best.right_token ||
        next[best.left] != best.right) {
      continue;
    }
    (*tokens)[best.left] = best.joined;
    (*tokens)[best.right] = kNoToken;
    next[best.left] = next[best.right];
    if (next[best.left] < count) {
      previous[next[best.left]] = best.left;
      consider(best.left, next[best.left]);
    }
    if (best.left > 0) {
      consider(previous[best.left], best.left);
    }
  }
  std::erase(*tokens, kNoToken);
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text) const {
  std::string spaced;
  if (!text.empty()) {
    spaced = ' ';
    spaced += text;
  }
  std::vector<int32_t> tokens = EncodeContinuation(spaced);
  tokens.insert(tokens.begin(), kBosToken);
  return tokens;
}

std::vector<int32_t> Tokenizer::EncodeContinuation(std::string_view text) const {
  std::vector<int32_t> tokens = EncodeCharacters(text);
  Merge(&tokens);
  return tokens;
}

std::string_view Tokenizer::Decode(int32_t previous, int32_t token) const {
  if (token < 0 || token >= vocab_size()) {
    return {};
  }
  std::string_view piece = pieces_[static_cast<size_t>(token)];
  if (previous == kBosToken && piece.starts_with(' ')) {
    piece.remove_prefix(1);
  }
  return piece;
}

std::string Tokenizer::Decode(std::span<const int32_t> tokens) const {
  std::string text;
  int32_t previous = kNoToken;
  for (const int32_t token : tokens) {
    text += Decode(previous, token);
    previous = token;
  }
  return text;
}

}  // namespace cairn::llama
