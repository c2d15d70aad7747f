// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/branch_writer.h"

#include <algorithm>
#include <utility>

#include "engine/exchange/exchange.h"

namespace cairn::engine {

namespace {

// As many as fit the smallest record of the log, beside a state.
constexpr size_t kSpansAtOnce = 256;

}  // namespace

Status BranchWriter::NextState(const Source& source, uint64_t begin, uint64_t end) {
  CAIRN_ASSIGN_OR_RETURN(state_, source.next_state());
  if (!state_.has_value()) return Status::Ok();
  const uint64_t position = state_->position;
  if (position < begin || position > end || (any_state_ && position <= last_state_)) {
    return Status(StatusCode::kCorruption, "a state at position " + std::to_string(position) +
                                               " is not behind the one before, among the tokens");
  }
  any_state_ = true;
  last_state_ = position;
  return Status::Ok();
}

// The end of an append that begins at `at`.
Result<uint64_t> BranchWriter::Cut(const Source& source, uint64_t at, uint64_t end) const {
  uint64_t cut = std::min(end, at + kIdsAtOnce);
  if (state_.has_value()) cut = std::min(cut, state_->position);
  for (size_t i = span_; i < source.spans.size() && source.spans[i].begin < cut; ++i) {
    const ContentSpan& span = source.spans[i];
    if (i == span_ + kSpansAtOnce) {
      cut = span.begin;
    } else if (span.end > cut) {
      if (state_.has_value() && state_->position < span.end && state_->position > span.begin) {
        return Status(StatusCode::kCorruption,
                      "the state at position " + std::to_string(state_->position) +
                          " is inside the content span [" + std::to_string(span.begin) + ", " +
                          std::to_string(span.end) + ")");
      }
      cut = span.begin > at ? span.begin : span.end;
    }
  }
  return cut;
}

Status BranchWriter::Append(uint64_t at, std::span<const TokenId> tokens,
                            std::span<const ContentSpan> spans, const Branch::StateAt* state) {
  Delta delta;
  delta.tokens = tokens;
  delta.spans = spans;
  if (state != nullptr && state->sampler.has_value()) delta.sampler = &*state->sampler;
  if (state != nullptr && state->metadata.has_value()) delta.metadata = &*state->metadata;
  if (tokens.empty() && delta.sampler == nullptr && delta.metadata == nullptr) return Status::Ok();
  AppendOptions options;
  options.durability = Durability::kMemory;
  options.expected_length = at;
  CAIRN_ASSIGN_OR_RETURN(length_, core_->appender().AppendSync(id_, delta, options));
  return Status::Ok();
}

Status BranchWriter::Write(const Source& source, uint64_t begin, uint64_t from, uint64_t end) {
  while (span_ < source.spans.size() && source.spans[span_].end <= from) ++span_;
  do {
    CAIRN_RETURN_IF_ERROR(NextState(source, begin, end));
  } while (state_.has_value() && state_->position < from);
  std::vector<TokenId> tokens;
  for (uint64_t at = from;;) {
    if (state_.has_value() && state_->position == at) {
      CAIRN_RETURN_IF_ERROR(Append(at, {}, {}, &*state_));
      CAIRN_RETURN_IF_ERROR(NextState(source, begin, end));
    }
    if (at == end) return Status::Ok();
    CAIRN_ASSIGN_OR_RETURN(const uint64_t cut, Cut(source, at, end));
    size_t span_end = span_;
    while (span_end < source.spans.size() && source.spans[span_end].end <= cut) ++span_end;
    tokens.resize(cut - at);
    CAIRN_RETURN_IF_ERROR(source.tokens(at, tokens));
    const bool has_state = state_.has_value() && state_->position == cut;
    CAIRN_RETURN_IF_ERROR(Append(at, tokens, source.spans.subspan(span_, span_end - span_),
                                 has_state ? &*state_ : nullptr));
    span_ = span_end;
    at = cut;
    if (has_state) CAIRN_RETURN_IF_ERROR(NextState(source, begin, end));
  }
}

}  // namespace cairn::engine
