// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/append_limits.h"

#include <algorithm>
#include <string>

#include "base/codec/kv_frame.h"
#include "base/core/check.h"
#include "base/core/text.h"
#include "cairn/limits.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/reserved_names.h"
#include "sstable/constants.h"

namespace cairn::engine {

// Each layer below takes whatever the API accepts.
static_assert(kMaxRowBytes + kFrameHeaderBytes <= sstable::kMaxStoredBytes, "a row is a frame");
static_assert(kMaxGroupHeads <= UINT32_MAX, "the slices of a fragment");
static_assert(kMaxAppendTokens <= UINT32_MAX, "the positions of an extent, and of a fragment");
static_assert(kMaxLayerGroups < 16, "groups in a strip's tag and in a view");
// B and U keys: letter, namespace, NUL, name or the numbers of an order, NUL, number.
static_assert(1 + NamespaceBytesMax(kObjectSpace) + 1 + NameBytesMax(kObjectSpace) + 1 + 8 <=
              sstable::kMaxKeyBytes);
static_assert(1 + NamespaceBytesMax(kObjectSpace) + 1 + 18 <= sstable::kMaxKeyBytes);
static_assert(kMaxExtentTokens * sizeof(TokenId) <= sstable::kMaxStoredBytes);

namespace {

Status TooLarge(const std::string& field, uint64_t has, uint64_t limit) {
  return Status(StatusCode::kInvalidArgument,
                field + " has " + std::to_string(has) + ", at most " + std::to_string(limit));
}

// Bytes of a field of an op, with its header; and of all fields of a state except its texts and
// blobs.
constexpr uint64_t kSpanFieldBytes = 48, kSealedFieldBytes = 40, kStateFieldsBytes = 512;
// Overhead of a record: its frame, an op without spans, a lane and a strip for each view of each
// group, padding.
constexpr uint64_t kRecordOverheadBytes = 8192, kViewsOfGroupMax = 2;
static_assert(kViewsOfGroupMax * kMaxLayerGroups * (32 + 16 + 2 * 64) + 512 <=
              kRecordOverheadBytes);

// For this much payload: strips of 4 KiB and more have 16 bytes each in a table.
uint64_t OverheadBytes(uint64_t payload_bytes) {
  return kRecordOverheadBytes + payload_bytes / (kStripBytesMin / 16);
}

// Spans and states as a record has them, rounded up.
uint64_t BesidesBytes(const Delta& delta) {
  uint64_t bytes = delta.spans.size() * kSpanFieldBytes;
  if (const SamplerState* const sampler = delta.sampler; sampler != nullptr) {
    bytes += sampler->blob.size() + sampler->blob_name.size() +
             sampler->last_logits.size() * sizeof(float) + kStateFieldsBytes;
  }
  if (const AppMetadata* const metadata = delta.metadata; metadata != nullptr) {
    bytes += metadata->bytes.size() + metadata->content_type.size() + kStateFieldsBytes;
  }
  return bytes;
}

// Bytes of a position of the group that takes most.
uint64_t PositionBytes(const ModelSpec& model, const Delta& delta) {
  uint64_t bytes = 0;
  for (size_t i = 0; delta.kv != nullptr && i < delta.kv->groups.size(); ++i) {
    const GroupView& view = delta.kv->groups[i];
    if (view.count != 0) bytes = std::max(bytes, KvLayoutBytes(model.groups[view.group], 1));
  }
  return bytes;
}

std::string GroupName(const ModelSpec& model, const GroupView& view) {
  return "kv of group " + std::to_string(view.group) + " (" +
         Quoted(model.groups[view.group].name) + ")";
}

// Checks limits that are the same for every store.
Status CheckSizes(const Delta& delta) {
  if (delta.tokens.size() > kMaxAppendTokens) {
    return TooLarge("tokens", delta.tokens.size(), kMaxAppendTokens);
  }
  if (delta.spans.size() > kMaxAppendSpans) {
    return TooLarge("spans", delta.spans.size(), kMaxAppendSpans);
  }
  if (const SamplerState* const sampler = delta.sampler; sampler != nullptr) {
    if (sampler->generator > GeneratorKind::kNamed) {
      return Status(StatusCode::kInvalidArgument, "sampler.generator is none that exists");
    }
    if (sampler->blob.size() > kMaxStateBytes) {
      return TooLarge("sampler.blob", sampler->blob.size(), kMaxStateBytes);
    }
    if (sampler->blob_name.size() > kMaxStateTextBytes) {
      return TooLarge("sampler.blob_name", sampler->blob_name.size(), kMaxStateTextBytes);
    }
    if (sampler->last_logits.size() > kMaxLastLogits) {
      return TooLarge("sampler.last_logits", sampler->last_logits.size(), kMaxLastLogits);
    }
  }
  if (const AppMetadata* const metadata = delta.metadata; metadata != nullptr) {
    if (metadata->bytes.size() > kMaxStateBytes) {
      return TooLarge("metadata.bytes", metadata->bytes.size(), kMaxStateBytes);
    }
    if (metadata->content_type.size() > kMaxStateTextBytes) {
      return TooLarge("metadata.content_type", metadata->content_type.size(), kMaxStateTextBytes);
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckShape(const ModelSpec& model, const Delta& delta, bool fill) {
  const bool has_kv =
      delta.kv != nullptr && std::any_of(delta.kv->groups.begin(), delta.kv->groups.end(),
                                         [](const GroupView& view) { return view.count != 0; });
  const bool has_state = delta.sampler != nullptr || delta.metadata != nullptr;
  if (delta.tokens.empty() && !fill && (has_kv || !has_state)) {
    return Status(StatusCode::kInvalidArgument,
                  "an append needs at least one token, or a state alone; Fill attaches KV alone");
  }
  if (fill && (delta.kv == nullptr || delta.kv->groups.empty())) {
    return Status(StatusCode::kInvalidArgument, "nothing to fill");
  }
  CAIRN_RETURN_IF_ERROR(CheckSizes(delta));
  if (delta.kv == nullptr) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(ValidateKvView(model, *delta.kv, KvUse::kAppend));
  for (const GroupView& view : delta.kv->groups) {
    const bool one_state = model.groups[view.group].retention.kind == Retention::kPerRequest;
    if (one_state && view.count != 0 && (view.position != 0 || view.count != 1)) {
      return Status(StatusCode::kInvalidArgument,
                    GroupName(model, view) +
                        " is one state, in the row of position 0; positions [" +
                        std::to_string(view.position) + ", " +
                        std::to_string(view.position + view.count) + ") were given");
    }
    if (fill && view.count == 0) {
      return Status(StatusCode::kInvalidArgument, GroupName(model, view) + " fills no position");
    }
  }
  return Status::Ok();
}

Status AppendLimits::CheckFits(const ModelSpec& model, const Delta& delta) const {
  if (const uint64_t besides = BesidesBytes(delta); besides > BesidesBytesMax()) {
    return Status(
        StatusCode::kInvalidArgument,
        "sampler, metadata and spans take " + std::to_string(besides) +
            " bytes of a log record; with this segment_bytes and hot_tail_bytes at most " +
            std::to_string(BesidesBytesMax()));
  }
  return CheckPosition(PositionBytes(model, delta));
}

// A position of a group is never divided between records.
Status AppendLimits::CheckPosition(uint64_t bytes) const {
  const uint64_t record_bytes = log_->max_record_bytes();
  const uint64_t most = record_bytes - OverheadBytes(record_bytes);
  if (bytes <= most) return Status::Ok();
  return Status(StatusCode::kInvalidArgument,
                "kv: one position takes " + std::to_string(bytes) +
                    " bytes; with this segment_bytes and hot_tail_bytes at most " +
                    std::to_string(most) + " fit a log record");
}

bool IsOnGpu(const Delta& delta) {
  return delta.kv != nullptr && delta.kv->memory != MemoryKind::kHost &&
         std::any_of(delta.kv->groups.begin(), delta.kv->groups.end(),
                     [](const GroupView& view) { return view.count != 0; });
}

Status CheckLength(uint64_t length, std::optional<uint64_t> expected) {
  if (!expected.has_value() || *expected == length) return Status::Ok();
  return Status(StatusCode::kConflict, "expected_length is " + std::to_string(*expected) +
                                           ", the branch has " + std::to_string(length) +
                                           " tokens");
}

uint64_t RawBytes(const ModelSpec& model, const Delta& delta) {
  uint64_t bytes = delta.tokens.size() * sizeof(TokenId);
  if (delta.kv == nullptr) return bytes;
  for (const GroupView& view : delta.kv->groups) {
    bytes += view.count * model.groups[view.group].token_bytes();
  }
  return bytes;
}

uint64_t PayloadBytes(const ModelSpec& model, const Delta& delta) {
  return delta.tokens.size() * sizeof(TokenId) +
         WindowKvBytes(model, delta, DeltaWindow::Whole(delta));
}

// Half of a segment, so that a part always fits into a fresh one.
uint64_t AppendLimits::PayloadBytesMax() const {
  return std::min<uint64_t>(kPartBytesMax, log_->max_record_bytes() / 2);
}

uint64_t AppendLimits::BesidesBytesMax() const {
  const uint64_t payload_bytes = PayloadBytesMax();
  return log_->max_record_bytes() - payload_bytes - OverheadBytes(payload_bytes);
}

uint64_t AppendLimits::CoalescedTokensMax(const ModelSpec& model) const {
  uint64_t position_bytes = sizeof(TokenId);
  for (const LayerGroup& group : model.groups) position_bytes += KvLayoutBytes(group, 1);
  return std::min<uint64_t>(options_.delta_batch_tokens, PayloadBytesMax() / position_bytes);
}

bool AppendLimits::StatesFit(std::span<const DeltaState> some,
                             std::span<const DeltaState> more) const {
  uint64_t bytes = 0;
  for (const auto& states : {some, more}) {
    for (const DeltaState& state : states) bytes += state.bytes.size() + kStateFieldsBytes;
  }
  return bytes <= BesidesBytesMax();
}

bool AppendLimits::FitsRecord(const ModelSpec& model, const Delta& delta) const {
  return PayloadBytes(model, delta) <= PayloadBytesMax();
}

}  // namespace cairn::engine
