// SPDX-License-Identifier: Apache-2.0
#include "engine/background/seal_reader.h"

#include <algorithm>
#include <utility>

#include "base/io/file_util.h"
#include "engine/tree/memory/fragment_layout.h"
#include "engine/tree/memory/seal_source.h"

namespace cairn {

using engine::Tree;

namespace {

// The last source put into the buffer may be a small one that ends beyond kReadAheadBytes.
constexpr uint64_t kBufferBytes = engine::kReadAheadBytes + engine::kReadAheadSourceBytesMax;
static_assert(2 * engine::kPartBytesMax <= kBufferBytes, "two of the largest records fit");

// Visits the log records of a source, with the bytes to read of each.
template <typename Visit>
void ForEachRecord(const engine::SealSource& source, const Visit& visit) {
  const auto place = [&](const engine::Place& at, uint32_t bytes) {
    if (at.table == 0) visit(at.log, bytes);
  };
  for (const engine::Extent& extent : source.extents) {
    place(extent.place,
          source.lane == engine::kTokenLane ? extent.prefix_bytes : extent.place.log.bytes);
  }
  if (source.extents.empty()) place(source.mark.place, source.mark.place.log.bytes);
}

uint64_t BytesOf(const engine::SealSource& source) {
  if (source.extents.empty()) return source.mark.place.log.bytes;
  return source.count * engine::FragmentLayout(*source.model, source.lane).position_bytes();
}

// Whether its records are read together with others: they are small, or mostly hold other content,
// like records of objects that were put together.
bool IsReadAhead(const engine::SealSource& source) {
  uint64_t bytes = 0;
  ForEachRecord(source, [&](const wal::Location&, uint32_t wanted) { bytes += wanted; });
  if (bytes <= engine::kReadAheadSourceBytesMax) return true;
  return bytes <= kBufferBytes && bytes / 2 > BytesOf(source);
}

}  // namespace

Status StoreSealReader::ReadTokens(const engine::SealSource& source, std::span<TokenId> into) {
  RestoreRequest request;
  request.tokens = into;
  return Read(source, source.begin, source.begin + source.count, request);
}

Status StoreSealReader::ReadKv(const engine::SealSource& source, const GroupView& into) {
  const KvView view{.groups = {&into, 1}};
  RestoreRequest request;
  request.into = &view;
  return Read(source, into.position, into.position + into.count, request);
}

Result<std::vector<std::byte>> StoreSealReader::ReadState(const engine::SealSource& source) {
  CAIRN_RETURN_IF_ERROR(LookAhead(source));
  auto state = reader_->ReadMark(source.node, source.lane == engine::kSamplerLane, source.mark,
                                 &read_ahead_);
  if (!state.ok()) return io::MissingIsCorruption(state.status());
  return state;
}

Status StoreSealReader::Read(const engine::SealSource& source, uint64_t begin, uint64_t end,
                             const RestoreRequest& request) {
  CAIRN_RETURN_IF_ERROR(LookAhead(source));
  engine::RestorePlan plan;
  plan.model = source.model;
  plan.begin = begin;
  plan.end = end;
  for (const engine::Extent& extent : source.extents) {
    const uint64_t from = std::max(begin, extent.begin);
    const uint64_t to = std::min<uint64_t>(end, extent.begin + extent.count);
    if (from < to) engine::AddExtent(source.node, source.lane, extent, from, to, &plan);
  }
  // Only this thread deletes files.
  return io::MissingIsCorruption(reader_->ReadPlan(std::move(plan), request, &read_ahead_));
}

// Fills the buffer from the first source on that was not looked at yet. A large source, which may
// be read before its turn, has nothing in it.
Status StoreSealReader::LookAhead(const engine::SealSource& source) {
  const size_t index = static_cast<size_t>(&source - expected_.data());
  if (index < looked_ahead_) return Status::Ok();
  if (!IsReadAhead(source)) return Take(0);
  read_ahead_.Clear();
  uint64_t bytes = 0;
  wal::Location last;    // Neighbours often lie in one record...
  uint64_t of_last = 0;  // ...and this much of it is read.
  for (; looked_ahead_ < expected_.size() && bytes < engine::kReadAheadBytes; ++looked_ahead_) {
    const engine::SealSource& next = expected_[looked_ahead_];
    if (!IsReadAhead(next)) continue;
    uint64_t more = 0;
    ForEachRecord(next, [&](const wal::Location& at, uint32_t wanted) {
      if (at != last) of_last = 0;
      last = at;
      if (wanted <= of_last) return;
      more += wanted - of_last;
      of_last = wanted;
    });
    if (bytes != 0 && bytes + more > kBufferBytes) break;
    bytes += more;
    ForEachRecord(next, [&](const wal::Location& at, uint32_t wanted) {
      // A hot record may not have reached the device.
      if (!reader_->IsHot(at, wanted)) read_ahead_.Add(at, wanted);
    });
  }
  // Records that could not be read ahead are read alone later, and their damage is reported then.
  reader_->Fill(&read_ahead_);
  return Take(0);
}

}  // namespace cairn
