// SPDX-License-Identifier: Apache-2.0
#include "engine/find/indexer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"
#include "engine/find/constants.h"
#include "engine/tree/memory/reserved_names.h"

namespace cairn::engine {

// ---------------------------------------------------------------- opening and closing

namespace {

// Ids of objects say how many bytes of a row are used, which is no prompt. What is replayed goes
// into another tree than this, or one that is nobody's yet: then the indexing looks.
bool IsOfObject(const Tree& tree, const CommittedOp& append) {
  if (append.origin == CommitOrigin::kReplay) return false;
  const Node* const node = tree.FindNode(append.op.node);
  return node != nullptr && IsReserved(node->ns);
}

std::span<const sstable::LiveTable> HintTables(const Manifest& manifest) {
  for (const NamedIndex& index : manifest.named) {
    if (index.name == kHintsName) return index.tables;
  }
  return {};
}

}  // namespace

void Indexer::Open(const sstable::TableContext& tables, const Manifest& manifest) {
  tables_ = tables;
  {
    const std::lock_guard lock(deps_.write->mutex());
    appended_tokens_ = 0;
    tokens_before_ = deps_.write->tree().counts().tokens;
  }
  if (const auto live = HintTables(manifest); !live.empty()) {
    auto opened = Hints::Open(tables_, live, deps_.memory_bytes);
    if (opened.ok()) {
      MutexLock lock(&mutex_);
      hints_ = flushed_hints_ = std::move(*opened);
      flushed_sequence_ = manifest.index_sequence;
      return;
    }
    Report("the index of prefixes is made anew: ", opened.status());
  }
  auto made = Hints::Open(tables_, {}, deps_.memory_bytes);
  if (!made.ok()) {
    Report("no prefix is indexed: ", made.status());
    return;
  }
  rebuilding_ = deps_.write->tree().counts().nodes != 0;
  MutexLock lock(&mutex_);
  hints_ = std::move(*made);
}

// A store that has no manifest of its tree yet has all of it in the log.
void Indexer::PrepareShow(const sstable::TableContext& tables, const Manifest& manifest,
                          bool unindexed) {
  unindexed_ = unindexed;
  if (tables_.files == nullptr) tables_ = tables;  // At the opening; searches read it.
  const auto live = HintTables(manifest);
  // The entries made from the log are in memory only: new hints would have to make them again.
  {
    MutexLock lock(&mutex_);
    const bool goes_on = prepared_ != nullptr && prepared_ == hints_ && !lost_ &&
                         manifest.index_sequence <= shown_sequence_ &&
                         std::ranges::equal(live, prepared_tables_);
    if (goes_on) return;
  }
  prepared_ = nullptr;
  if (live.empty() && !manifest.index.empty()) return;
  static_cast<void>(CatchBadAlloc([&] {
    prepared_tables_.assign(live.begin(), live.end());
    auto opened = Hints::Open(tables, live, deps_.memory_bytes);
    if (opened.ok()) prepared_ = std::move(*opened);
    return opened.status();
  }));
}

void Indexer::Show() noexcept {
  changes_.fetch_add(1);
  moves_.fetch_add(1);
  MutexLock lock(&mutex_);
  digests_.Clear();
  shown_sequence_ = refreshed_sequence_;
  if (hints_ != nullptr && hints_ == prepared_) {
    for (const auto& [node, from] : refreshed_new_) {
      const auto noted = noted_.find(node);
      if (noted != noted_.end()) noted->second.Lower(from);
    }
    noted_.merge(refreshed_new_);
    if (refresh_lost_) lost_ = true;
  } else {
    hints_ = prepared_;
    noted_.swap(refreshed_);
    lost_ = refresh_lost_;
  }
  refreshed_.clear();
  refreshed_new_.clear();
}

void Indexer::Start() {
  const std::shared_ptr<Hints> hints = this->hints();
  if (hints == nullptr) return;
  thread_ = std::make_unique<io::Executor>(*deps_.write->world.scheduler, "cairn-hints", 1,
                                           io::ThreadPriority::kBackground);
  if (rebuilding_) {
    thread_->Post([this] { Rebuild(); });
  } else if (!hints->filter_ready()) {
    // Without a filter a search asks the hints themselves.
    thread_->Post([this, hints] {
      const Status filled =
          CatchBadAlloc([&] { return hints->FillFilter([this] { return !stopping_; }); });
      if (filled.code() == StatusCode::kCorruption) Discard(*hints, filled);
    });
  }
  // After a crash nodes are behind. Each search indexes some; this thread indexes them without one.
  if (behind() != 0 && !deps_.write->options->read_only) {
    thread_->Post([this] { CatchUpAll([this] { return !stopping_; }); });
  }
}

void Indexer::Stop() {
  stopping_ = true;
  flushed_.fetch_add(1);
  deps_.write->world.scheduler->WakeAll(flushed_);
  if (thread_ != nullptr) thread_->Stop();
}

std::shared_ptr<Hints> Indexer::hints() const {
  MutexLock lock(&mutex_);
  return hints_;
}

// Their tables are files of nobody from the next manifest on, and go at the next opening.
void Indexer::Discard(const Hints& hints, const Status& why) {
  auto made = CatchBadAlloc([&] { return Hints::Open(tables_, {}, deps_.memory_bytes); });
  {
    MutexLock lock(&mutex_);
    if (hints_.get() != &hints) return;  // Others met it, too.
    lost_ = true;
    if (!made.ok()) return;  // Keep the damaged ones: their whole blocks still help.
    hints_ = std::move(*made);
    digests_.Clear();
  }
  if (deps_.write->options->read_only) return;  // The manifest that it reads next names others.
  deps_.write->callbacks->WakeSpaceThread();    // The next tree flush begins to make them.
  Report("the index of prefixes is made anew: ", why);
}

// Without memory the line is dropped: it is not worth ending the thread.
void Indexer::Report(const char* what, const Status& why) {
  static_cast<void>(CatchBadAlloc([&] { deps_.tell(what + why.ToString()); }));
}

// ---------------------------------------------------------------- noting

// A replay begins behind the manifest: until then the namespaces were what it says. What a
// failed log took back is another node's number, or has other tokens, from now on.
void Indexer::OnReplay(uint64_t after_sequence) {
  changes_.fetch_add(1);
  if (deps_.write->options->read_only) {
    // Those of a refresh that was not shown. A reader has the namespaces as they are shown.
    MutexLock lock(&mutex_);
    digests_.Clear();
    refreshed_.clear();
    refreshed_new_.clear();
    refresh_lost_ = false;
    refreshed_sequence_ = after_sequence;
    return;
  }
  // Nodes that were found to be gone may exist again.
  const wal::Log* const log = deps_.write->log;
  if (log != nullptr && forgotten_ > log->durable_sequence()) lost_ = true;
  const std::lock_guard commit(deps_.write->mutex());
  MutexLock lock(&mutex_);
  digests_.Clear();
  for (const auto& [name, use] : deps_.write->tree().namespaces()) {
    if (use.policy.index != Index::kPrefix) policies_.insert_or_assign(name, use.policy.index);
  }
}

void Indexer::OnCommitted(const CommittedOp& committed) noexcept {
  const Op& op = committed.op;
  try {
    switch (op.kind) {
      case OpKind::kAppend: return OnAppend(committed);
      case OpKind::kFill: return OnFill(committed);
      case OpKind::kJoin: return OnJoin(committed);
      case OpKind::kTrim: return OnTrim(op.node, op.position);
      case OpKind::kRewind:
        if ((op.flags & kOpInPlace) != 0) OnTrim(op.node, op.position);
        return;
      case OpKind::kNamespace: return OnPolicy(committed);
      default: return;
    }
  } catch (const std::bad_alloc&) {
    MutexLock lock(&mutex_);
    if (deps_.write->options->read_only) {
      refresh_lost_ = true;
    } else {
      lost_ = true;
    }
  }
}

// Chunks begin where KV does, which may lie before the tokens that come with it.
void Indexer::OnAppend(const CommittedOp& append) {
  IndexedFrom from{.prefixes = append.op.position, .chunks = UINT64_MAX};
  append.VisitRanges([&](uint64_t, uint32_t lane, uint64_t begin, uint64_t count) {
    if (lane == kTokenLane) appended_tokens_ += count;
    if (lane < kDerivedLane) from.chunks = std::min(from.chunks, begin);
  });
  if (IsOfObject(deps_.write->tree(), append)) return;
  RecordChange(append.op.node, from, append.sequence);
}

// Prefixes need no KV. Nodes of the branch behind the filled ones have windows that reach into
// them. What is replayed goes into another tree, where the indexing looks, and those nodes are not
// known here.
void Indexer::OnFill(const CommittedOp& fill) {
  IndexedFrom from{.prefixes = UINT64_MAX, .chunks = UINT64_MAX};
  uint64_t end = 0;
  fill.VisitRanges([&](uint64_t, uint32_t, uint64_t begin, uint64_t count) {
    from.chunks = std::min(from.chunks, begin);
    end = std::max(end, begin + count);
  });
  if (fill.origin == CommitOrigin::kReplay) {
    if (fill.node != 0) RecordChange(fill.node, from, fill.sequence);
    return;
  }
  const Tree& tree = deps_.write->tree();
  const Head* const head = tree.FindHead(fill.op.branch);
  const Node* node = head == nullptr ? nullptr : tree.OnPath(head->node);
  for (; node != nullptr; node = tree.OnPath(node->parent)) {
    const Lane& tokens = node->lanes[kTokenLane];
    if (node->use->policy.index == Index::kChunks && tokens.start < end + kChunkRun - 1) {
      RecordChange(node->id, from, fill.sequence);
    }
    if (tokens.start <= from.chunks) break;
  }
}

void Indexer::OnJoin(const CommittedOp& join) {
  RecordChange(join.op.node, {0, 0}, join.sequence);
  moves_.fetch_add(1);
}

void Indexer::RecordChange(uint64_t node, const IndexedFrom& from, uint64_t sequence) {
  MutexLock lock(&mutex_);
  if (!deps_.write->options->read_only) {
    if (noted_.size() >= kNotedMax && !noted_.contains(node)) {
      lost_ = true;
    } else {
      RecordIn(&noted_, node, from);
    }
    return;
  }
  refreshed_sequence_ = std::max(refreshed_sequence_, sequence);
  if (refreshed_.size() >= kNotedMax && !refreshed_.contains(node)) {
    refresh_lost_ = true;
    return;
  }
  RecordIn(&refreshed_, node, from);
  if (sequence > shown_sequence_) RecordIn(&refreshed_new_, node, from);
}

void Indexer::RecordIn(Noted* noted, uint64_t node, const IndexedFrom& from) {
  noted->try_emplace(node, from).first->second.Lower(from);
}

void Indexer::OnTrim(uint64_t node, uint64_t position) {
  changes_.fetch_add(1);
  MutexLock lock(&mutex_);
  digests_.Trim(node, position);
}

// A namespace without nodes has nothing to index. What is replayed goes into another tree than
// this.
void Indexer::OnPolicy(const CommittedOp& policy) {
  const Op& op = policy.op;
  const Index now = op.policy.has_value() ? op.policy->ns_policy().index : Index::kPrefix;
  if (deps_.write->options->read_only) {
    // Its writer knows what the namespace had by then. The hints of the manifest may lack that.
    MutexLock lock(&mutex_);
    if (now == Index::kChunks) refresh_lost_ = true;
    return;
  }
  bool is_empty = false;
  if (policy.origin != CommitOrigin::kReplay) {
    const auto& all = deps_.write->tree().namespaces();
    const auto ns = all.find(op.ns);
    is_empty = ns == all.end() || ns->second.nodes == 0;
  }
  MutexLock lock(&mutex_);
  const auto known = policies_.find(op.ns);
  const Index before = known == policies_.end() ? Index::kPrefix : known->second;
  if (now == Index::kPrefix) {
    policies_.erase(op.ns);
  } else {
    policies_.insert_or_assign(op.ns, now);
  }
  // Its present content is to be indexed. What is indexed in vain is found no more.
  const bool more = now != before && (before == Index::kNone || now == Index::kChunks);
  if (more && !is_empty) lost_ = true;
}

uint64_t Indexer::behind() const {
  MutexLock lock(&mutex_);
  return noted_.size() + in_work_;
}

bool Indexer::complete() const {
  return hints() != nullptr && !rebuilding_ && !lost_ && behind() == 0;
}

}  // namespace cairn::engine
