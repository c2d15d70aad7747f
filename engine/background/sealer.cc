// SPDX-License-Identifier: Apache-2.0
#include "engine/background/sealer.h"

#include <algorithm>

#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/fragment_layout.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

using Lock = Committer::Lock;

namespace {

uint64_t RawBytes(const SealSource& source) {
  return FragmentLayout(*source.model, source.lane).position_bytes() * source.count;
}

}  // namespace

// `keep`: entries logged from here on are not examined, and stay.
Result<std::vector<uint64_t>> Sealer::ReadNodes(const SegmentSet& segments, bool keep) const {
  std::vector<uint64_t> nodes;
  CAIRN_RETURN_IF_ERROR(TreeRecords::ReadLogged(*deps_.index, segments, &nodes));
  std::lock_guard lock(mutex_);
  for (const auto& [at, node] : tree_.logged().entries()) {
    if (segments.Contains(at)) nodes.push_back(node);
  }
  if (keep) tree_.logged().Keep();
  return nodes;
}

// L records of the index, and nodes logged since the last tree flush, say what must be sealed.
// Meanwhile others append into the same segments, and tree flushes come between the steps. We do
// not track, per L record, whether everything it covers was sealed; the next flush rewrites them:
// it deletes all of them of these segments and then puts those that the tree still has, that is,
// all that was logged since this looked (LoggedNodes::Keep), flushed meanwhile or not.
Status Sealer::Seal(const SegmentSet& segments) {
  struct Kept {
    Sealer* sealer;
    ~Kept() {
      std::lock_guard lock(sealer->mutex_);
      sealer->tree_.logged().Release();
    }
  };
  CAIRN_ASSIGN_OR_RETURN(const std::vector<uint64_t> nodes, ReadNodes(segments, /*keep=*/true));
  const Kept kept{this};
  CAIRN_RETURN_IF_ERROR(SealPlaces(nodes, [&segments](const Place& place) {
    return place.log.segment != 0 && segments.Contains(place.log.segment);
  }));
  CAIRN_RETURN_IF_ERROR(deps_.log->Flush(io::kNoDeadline));
  const std::lock_guard lock(mutex_);  // Released before the entries are.
  tree_.logged().Forget(segments);
  flusher_->OnSealed(segments);
  return Status::Ok();
}

// Appends that are held at the log's limit wait for its oldest part, so this ends when the log is
// long: LogReclaimer seals that part. A later round takes up the remaining nodes.
Status Sealer::SealDue() {
  wanted_ = false;
  const auto log_is_long = [this] { return deps_.gauge->LogIsLong(); };
  if (log_is_long()) return Status::Ok();
  std::vector<uint64_t> nodes;
  {
    std::lock_guard lock(mutex_);
    const bool due = tree_.seal_queue().bytes() >= kSealDueBytes;
    if (!due && postponed_.empty()) return Status::Ok();
    if (due) nodes = tree_.seal_queue().Take(&tree_.residency());
  }
  nodes.insert(nodes.end(), postponed_.begin(), postponed_.end());
  postponed_.clear();
  bool stopped = false;
  const Status sealed = SealPlaces(
      nodes, [](const Place& place) { return place.log.segment != 0; },
      [&] { return stopped = log_is_long(); });
  if (stopped) postponed_ = std::move(nodes);
  return sealed;
}

Status Sealer::SealPlaces(std::span<const uint64_t> nodes,
                          const std::function<bool(const Place&)>& wanted,
                          const std::function<bool()>& enough) {
  TableSeries tables(deps_, flusher_, dead_tables_);
  const Status sealed =
      CatchBadAlloc([&] { return SealAll({nodes.begin(), nodes.end()}, wanted, enough, &tables); });
  const Status last = CatchBadAlloc([&] { return tables.Finish(); });
  return sealed.ok() ? last : sealed;
}

// If only one child is left of a node, it is sealed as that child's. Ascending, like the fragments
// of a table: a child's number is greater than its parent's.
Status Sealer::SealAll(std::set<uint64_t> left, const std::function<bool(const Place&)>& wanted,
                       const std::function<bool()>& enough, TableSeries* tables) {
  const uint64_t table_bytes_max = deps_.gauge->TableRawBytesMax();
  const auto is_table = [&](uint64_t bytes, size_t sources) {
    return bytes >= table_bytes_max || sources >= kTableSourcesMax;
  };
  while (!left.empty()) {
    const auto batch = std::make_shared<SealBatch>(deps_.committer);
    std::vector<SealSource>& sources = batch->sources;
    uint64_t bytes = 0;
    for (size_t first = 0; !left.empty() && !is_table(bytes, sources.size());) {
      const uint64_t node = left.extract(left.begin()).value();
      CAIRN_RETURN_IF_ERROR(flusher_->FlushTreeIfDue());
      CAIRN_ASSIGN_OR_RETURN(const uint64_t child, joiner_->JoinAround(node));
      if (child != 0) left.insert(child);
      if (child == 0) CAIRN_RETURN_IF_ERROR(Choose(node, wanted, batch.get()));
      for (; first < sources.size(); ++first) bytes += RawBytes(sources[first]);
    }
    // A long conversation alone may be worth several tables.
    for (size_t begin = 0, end = 0; begin < sources.size(); begin = end) {
      for (bytes = 0; end < sources.size() && !is_table(bytes, end - begin); ++end) {
        bytes += RawBytes(sources[end]);
      }
      CAIRN_RETURN_IF_ERROR(tables->Add(batch, std::span(sources).subspan(begin, end - begin)));
      if (enough()) return Status::Ok();
    }
  }
  return Status::Ok();
}

Status Sealer::Choose(uint64_t node, const std::function<bool(const Place&)>& wanted,
                      SealBatch* batch) {
  Lock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(
      deps_.access->LoadToChange({.branches = {}, .nodes = {node}, .names = {}}, &lock));
  if (tree_.FindNode(node) == nullptr) return Status::Ok();
  batch->used.Add(node);
  CollectSealSources(tree_, node, wanted,
                     std::min(kSealSourceBytes, deps_.gauge->TableRawBytesMax()), &batch->sources);
  return Status::Ok();
}

bool Sealer::BecomesDue() {
  return tree_.seal_queue().bytes() >= kSealDueBytes && !wanted_.exchange(true);
}

}  // namespace cairn::engine
