// SPDX-License-Identifier: Apache-2.0
//
// Questions about models and branches, and the metrics (engine/collect_metrics.h).
#include "base/core/check.h"
#include "base/core/text.h"
#include "engine/restore/plan.h"
#include "engine/restore/restorable.h"
#include "engine/store_core.h"
#include "engine/tree/path.h"
#include "engine/tree/retention.h"
#include "engine/verifier.h"

namespace cairn {

namespace {

// A cursor is the key behind which the next page begins: name, NUL, id. Names hold no NUL, and a
// cursor that was made up is simply a place in the order.
std::string MakeCursor(const std::string& name, uint64_t id) {
  return name + '\0' + std::to_string(id);
}

engine::Tree::NameKey ParseCursor(std::string_view ns, const std::string& cursor) {
  const size_t nul = cursor.find('\0');
  uint64_t id = 0;
  if (nul != std::string::npos) {
    for (size_t i = nul + 1; i < cursor.size() && cursor[i] >= '0' && cursor[i] <= '9'; ++i) {
      id = id * 10 + static_cast<uint64_t>(cursor[i] - '0');
    }
  }
  return {std::string(ns), cursor.substr(0, nul), id + 1};
}

BranchInfo ToInfo(const engine::Head& head) {
  BranchInfo info;
  info.id = BranchId{head.id};
  info.name = head.name;
  info.ns = head.ns;
  info.model = ModelId{head.model};
  info.node = NodeId{head.node};
  info.length = head.lengths[engine::kTokenLane];
  info.kv_lengths.assign(head.lengths.begin() + 1, head.lengths.end());
  info.created_at_ns = head.created_at_ns;
  info.updated_at_ns = head.updated_at_ns;
  info.used_at_ns = head.used_at_ns;
  info.keep = head.keep;
  return info;
}

}  // namespace

Result<ModelInfo> StoreCore::GetModel(ModelId id) {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  std::lock_guard lock(mutex_);
  const auto spec = tree_.FindModel(static_cast<uint64_t>(id));
  if (spec == nullptr) {
    return Status(StatusCode::kNotFound,
                  "model " + std::to_string(static_cast<uint64_t>(id)) + " is not registered");
  }
  return ModelInfo{id, *spec};
}

std::vector<ModelInfo> StoreCore::Models() {
  std::lock_guard lock(mutex_);
  std::vector<ModelInfo> models;
  for (const auto& [id, spec] : tree_.models()) models.push_back({ModelId{id}, *spec});
  return models;
}

Result<Branch> StoreCore::FindBranch(std::string_view name, std::string_view ns) {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  Lock lock(mutex_);
  CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, access_.LoadNamed(ns, name, &lock));
  if (head == nullptr) {
    return Status(StatusCode::kNotFound,
                  "no branch " + Quoted(name) + (ns.empty() ? "" : " in namespace " + Quoted(ns)));
  }
  return Branch(shared_from_this(), BranchId{head->id});
}

Result<Branch> StoreCore::GetBranch(BranchId id) {
  CAIRN_RETURN_IF_ERROR(CopyHead(id).status());
  return Branch(shared_from_this(), id);
}

Result<BranchPage> StoreCore::ListBranches(std::string_view ns, std::string_view prefix,
                                           size_t limit, const std::string& cursor) {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (limit == 0) return Status(StatusCode::kInvalidArgument, "a page of no branches");
  FlushAllJoined();
  engine::Tree::NameKey from{std::string(ns), std::string(prefix), 0};
  if (!cursor.empty()) from = std::max(from, ParseCursor(ns, cursor));
  const size_t one_more = limit == SIZE_MAX ? limit : limit + 1;  // To know whether that is all.
  CAIRN_ASSIGN_OR_RETURN(std::vector<engine::Head> heads,
                         access_.ReadInOrder(std::move(from), one_more));
  BranchPage page;
  for (const engine::Head& head : heads) {
    if (head.ns != ns || !head.name.starts_with(prefix)) break;
    if (page.branches.size() == limit) {
      const BranchInfo& last = page.branches.back();
      page.cursor = MakeCursor(last.name, static_cast<uint64_t>(last.id));
      break;
    }
    page.branches.push_back(ToInfo(head));
  }
  return page;
}

Result<std::vector<NamespaceInfo>> StoreCore::Namespaces() {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  std::vector<NamespaceInfo> found;
  std::lock_guard lock(mutex_);
  for (const auto& [name, use] : tree_.namespaces()) {
    if (use.branches == 0 && use.policy == NamespacePolicy()) continue;
    found.push_back({name, use.policy, use.branches, use.bytes});
  }
  return found;
}

Result<std::vector<KvHole>> StoreCore::EvictedKv(BranchId id, uint64_t begin, uint64_t end) {
  Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LookAt(id, &lock));
  const auto model = tree_.FindModel(head->model);
  CAIRN_ASSIGN_OR_RETURN(
      const engine::Range range,
      engine::RangeOf(begin, end, head->lengths[engine::kTokenLane], "evicted KV"));
  begin = range.begin;
  end = range.end;
  const uint64_t common = engine::CommonLength(*model, head->lengths, end);
  std::vector<KvHole> found;
  const auto add = [&](uint32_t lane, uint64_t from, uint64_t to) {
    for (const engine::Hole& hole :
         FindHoles(tree_, *head, lane, std::max(from, begin), std::min(to, end))) {
      if (!found.empty() && found.back().group == lane - 1 && found.back().end == hole.begin) {
        found.back().end = hole.end;
      } else {
        found.push_back({lane - 1, hole.begin, hole.end});
      }
    }
  };
  for (uint32_t lane = 1; lane < head->lengths.size(); ++lane) {
    const LayerGroup& group = model->groups[lane - 1];
    if (!engine::MayHaveGaps(group)) {
      add(lane, begin, end);
      continue;
    }
    const engine::NeededPositions needed = engine::Needed(
        group, group.optional ? engine::LengthWithin(group, head->lengths[lane], common) : common);
    add(lane, 0, needed.sinks_end);
    add(lane, needed.begin, needed.end);
  }
  return found;
}

Result<uint64_t> StoreCore::RestorableLength(BranchId id, uint64_t at_most) {
  Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LookAt(id, &lock));
  return engine::RestorableLength(tree_, *head,
                                  std::min(at_most, head->lengths[engine::kTokenLane]));
}

Result<const engine::Head*> StoreCore::LookAt(BranchId id, Lock* lock) {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  static_cast<void>(FlushJoined(id));  // A failure is that of the tickets, which it ended.
  *lock = Lock(mutex_);
  return access_.LoadBranch(id, lock);
}

Result<engine::Head> StoreCore::CopyHead(BranchId id) {
  Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LookAt(id, &lock));
  return *head;
}

Result<BranchInfo> StoreCore::Info(BranchId id) {
  CAIRN_ASSIGN_OR_RETURN(const engine::Head head, CopyHead(id));
  return ToInfo(head);
}

Result<uint64_t> StoreCore::Length(BranchId id) {
  CAIRN_ASSIGN_OR_RETURN(const engine::Head head, CopyHead(id));
  return head.lengths[engine::kTokenLane];
}

// A length is durable with the sequence that brought it; a rewind makes the longer ones before it
// history, so the newest durable one counts.
Result<uint64_t> StoreCore::DurableLength(BranchId id) {
  Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LookAt(id, &lock));
  const uint64_t length = head->lengths[engine::kTokenLane];
  return committer_.lengths().Of(id, log_->durable_sequence()).value_or(length);
}

Result<std::vector<PathStep>> StoreCore::Path(BranchId id) {
  Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LookAt(id, &lock));
  return CollectPath(tree_, *head);
}

Result<std::vector<ContentSpan>> StoreCore::Spans(BranchId id, uint64_t begin, uint64_t end) {
  Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LookAt(id, &lock));
  CAIRN_ASSIGN_OR_RETURN(const engine::Range range,
                         engine::RangeOf(begin, end, head->lengths[engine::kTokenLane], "spans"));
  return CollectSpans(tree_, *head, range.begin, range.end);
}

Result<VerifyReport> StoreCore::Verify(VerifyLevel level, const VerifyProgress& progress) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (level > VerifyLevel::kAll) {
    return Status(StatusCode::kInvalidArgument, "level is none of kHeaders, kIndex and kAll");
  }
  if (!options_.read_only && log_->poisoned().ok()) CAIRN_RETURN_IF_ERROR(Flush());
  engine::Verifier verifier({.world = world_,
                             .directory = path_,
                             .options = &options_,
                             .committer = &committer_,
                             .manifest = &manifest_,
                             .reader = &reader_,
                             .space = &space_,
                             .follower = &follower_,
                             .log = log_.get()});
  return verifier.Run(level, progress);
}

StoreMetrics StoreCore::Metrics() {
  return engine::CollectMetrics({.options = &options_,
                                 .committer = &committer_,
                                 .commits = &commit_counters_,
                                 .calls = &counters_,
                                 .tickets = &tickets_,
                                 .reader = &reader_,
                                 .space = &space_,
                                 .manifest = &manifest_,
                                 .ledger = &ledger_,
                                 .tables = &table_counters_,
                                 .log = log_.get(),
                                 .now_ns = [this] { return NowNs(); }});
}

}  // namespace cairn
