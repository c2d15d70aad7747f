// SPDX-License-Identifier: Apache-2.0
#include "engine/find/path_runs.h"

#include <algorithm>

#include "engine/find/indexer.h"

namespace cairn::engine {

namespace {

// The span that has the position; null: none.
const ContentSpan* SpanAt(std::span<const ContentSpan> spans, uint64_t position) {
  const auto span = std::partition_point(
      spans.begin(), spans.end(), [&](const ContentSpan& one) { return one.end <= position; });
  return span != spans.end() && span->begin <= position ? &*span : nullptr;
}

}  // namespace

Status ReadRuns(Reader* reader, std::span<PathRun* const> runs, bool memory_only) {
  std::vector<RestoreItem> items;
  items.reserve(runs.size());
  for (PathRun* const run : runs) {
    run->ids.resize(run->end - run->begin);
    items.push_back(ItemOfIds(run->node, run->begin, run->ids));
  }
  if (items.empty()) return Status::Ok();
  reader->Restore(items, memory_only ? 0 : io::kNoDeadline);
  for (size_t i = 0; i < items.size(); ++i) {
    const Status& read = items[i].status;
    if (read.ok()) continue;
    if (memory_only && read.code() == StatusCode::kDeadlineExceeded) {
      return Status(StatusCode::kBusy, "token ids are not in memory");
    }
    if (!MayHaveMoved(read) && read.code() != StatusCode::kCorruption) return read;
    runs[i]->ids.clear();
    runs[i]->status = read;
  }
  return Status::Ok();
}

bool IsSame(const PathRun& run, uint64_t source, const PrefixQuery& query, uint64_t position) {
  if (run.ids[source - run.begin] != query.tokens[position]) return false;
  if (run.spans.empty() && query.spans.empty()) return true;
  const ContentSpan* const there = SpanAt(run.spans, source);
  const ContentSpan* const here = SpanAt(query.spans, position);
  if (there == nullptr || here == nullptr) return there == here;
  return source - there->begin == position - here->begin &&
         std::equal(there->hash, there->hash + 2, here->hash);
}

Digest DigestOf(std::span<const TokenId> ids, uint64_t begin, std::span<const ContentSpan> spans) {
  Digest digest = HashWide(std::as_bytes(ids));
  for (const ContentSpan& span : spans) {
    // It may begin before the run. A rewind behind the run cuts what lies behind it.
    const uint64_t end = std::min<uint64_t>(span.end - begin, ids.size());
    const uint64_t words[] = {digest.low, digest.high,  span.begin - begin,
                              end,        span.hash[0], span.hash[1]};
    digest = HashWide(std::as_bytes(std::span(words)));
  }
  return digest;
}

}  // namespace cairn::engine
