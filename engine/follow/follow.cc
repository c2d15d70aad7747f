// SPDX-License-Identifier: Apache-2.0
//
// Reading beside a writer. The reader takes nothing and is not known: it looks at the checkpoint,
// the index and the log as they are, and looks again when files went under its feet. The writer's
// part is the hint (engine/follow/hint.h).
#include <algorithm>
#include <new>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/io/file_util.h"
#include "engine/store_core.h"

namespace cairn {

namespace {

// Of one look, while the writer goes on replacing what is looked at. A look takes milliseconds, a
// checkpoint comes every some thousand records.
constexpr int kLooks = 8;

}  // namespace

// ---------------------------------------------------------------- the writer's part

// Does not tell of the newest checkpoint unless its writing is over; calls may overlap.
void StoreCore::PublishHint() {
  const io::Turn::Holder turn(&hint_turn_);
  engine::Hint hint;
  hint.epoch = manifest_.epoch();
  hint.durable = log_->durable_sequence();
  hint.checkpoint = manifest_.number();
  hint.history = manifest_.history();
  hint_sequence_.store(hint.durable, std::memory_order_relaxed);
  const Status status = hint_writer_.Write(hint, store_id());
  if (!status.ok() && !hint_failed_) {
    OnEvent("readers beside are not told how far the log is: " + status.ToString());
  }
  hint_failed_ = !status.ok();
}

// The log has got on. Never blocks.
void StoreCore::PublishHintSoon(uint64_t durable_sequence) {
  if (durable_sequence <= hint_sequence_.load(std::memory_order_relaxed)) return;
  if (!open_.load(std::memory_order_relaxed)) return;  // Close publishes the end of it.
  if (hint_due_.exchange(true)) return;
  // Without memory for it the next progress tells of this one as well.
  const auto without_memory = [this](const auto& call) {
    try {
      call();
    } catch (const std::bad_alloc&) {
      hint_due_.store(false);
    }
  };
  without_memory([&] {
    auto entry = engine::Timer::Make([this, without_memory] {
      without_memory([&] {
        executor_->Post([this, without_memory] {
          hint_due_.store(false);
          without_memory([&] { PublishHint(); });
        });
      });
      return io::kNoDeadline;
    });
    timer_->At(world_.scheduler->MonotonicNs() + engine::kHintPeriodNs, std::move(entry));
  });
}

// ---------------------------------------------------------------- the reader's part

Result<bool> StoreCore::WriterLives() {
  if (options_.salvage) return false;  // Whoever repairs a store is alone with it.
  return world_.files->IsLocked(io::JoinPath(path_, engine::kLockFile));
}

// One look at everything. Beside a writer only what is known to be durable counts: the hint says
// it, or the log itself. Without one all that is there counts, as for the next writer.
Status StoreCore::Look(Seen* seen) {
  io::FileSystem& files = *world_.files;
  CAIRN_ASSIGN_OR_RETURN(seen->beside_writer, WriterLives());
  seen->hint = engine::ReadHint(files, path_, store_id());
  CAIRN_ASSIGN_OR_RETURN(seen->manifest, engine::ReadManifest(files, path_));
  if (seen->manifest.store.bytes != store_id().bytes) {
    return Status(StatusCode::kInvalidState, path_ + ": another store has taken its place");
  }
  CAIRN_RETURN_IF_ERROR(CheckHistory(seen->manifest));
  // What another history's writer knew to be durable says nothing of this one.
  if (seen->hint.has_value() && seen->hint->history != seen->manifest.history.id) {
    seen->hint.reset();
  }
  for (const bool hinted : {true, false}) {
    wal::RecoveryOptions recovery;
    recovery.read_only = true;
    recovery.salvage = options_.salvage;
    if (seen->beside_writer) {
      recovery.following = true;
      recovery.stop_after = seen->manifest.last_sequence;
      // What was shown once stays: it was durable, or the writer that came later has made it so.
      if (log_ != nullptr) {
        recovery.stop_after = std::max(recovery.stop_after, log_->last_reserved_sequence());
      }
      if (hinted && seen->hint.has_value()) {
        recovery.stop_after = std::max(recovery.stop_after, seen->hint->durable);
      }
    }
    seen->tree = engine::Tree();
    CAIRN_RETURN_IF_ERROR(OpenTree(seen->manifest, &seen->tree));
    CAIRN_RETURN_IF_ERROR(Replay(seen->manifest, recovery, &seen->tree, &seen->log).status());
    // An earlier writer's hint says nothing of what a salvage put in the place of what was lost.
    const bool outdated = seen->hint.has_value() && !seen->log.segments.empty() &&
                          seen->hint->epoch < seen->log.segments.back().epoch;
    if (!seen->beside_writer || !outdated) break;
    seen->hint.reset();
  }
  seen->whole = CheckLogIsWhole(seen->manifest, seen->log);
  if (!seen->whole.ok() && (!options_.salvage || seen->whole.code() != StatusCode::kCorruption)) {
    return seen->whole;
  }
  // Both were read before, with all that they name.
  CAIRN_ASSIGN_OR_RETURN(const engine::Manifest still, engine::ReadManifest(files, path_));
  if (still.history.id != seen->manifest.history.id) {
    return Status(StatusCode::kStale, path_ + ": it was replaced while it was read");
  }
  if (seen->beside_writer) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const bool came, WriterLives());
  if (!came) return Status::Ok();
  return Status(StatusCode::kStale, path_ + ": a writer came while the store was read");
}

// Whether all that was seen of the store is so in this one, too: files that were looked at stay
// what they are then, and so do those that are known by name.
Status StoreCore::CheckHistory(const engine::Manifest& manifest) const {
  if (!CAIRN_KEPT(kHistoryIsCompared)) return Status::Ok();
  if (manifest_.IsContinuedBy(manifest)) return Status::Ok();
  return Status(StatusCode::kInvalidState,
                path_ + ": another history of the store has taken its place, as when a backup is " +
                    "put there; open it anew");
}

// Behind the opening of a file that is known by its name.
Status StoreCore::ConfirmFile() {
  if (manifest_.number() == 0) return Status::Ok();  // Nothing was seen that it could differ from.
  auto manifest = engine::ReadManifest(*world_.files, path_);
  if (manifest.status().code() == StatusCode::kNotFound) {
    return Status(StatusCode::kStale, path_ + ": no MANIFEST: it is being replaced");
  }
  if (!manifest.ok()) return manifest.status();
  return CheckHistory(*manifest);
}

// Looks until nothing is replaced meanwhile. An error that two looks at the same find is one.
Result<std::unique_ptr<StoreCore::Seen>> StoreCore::LookAgain() {
  Status status;
  uint64_t checkpoint = 0;
  std::optional<engine::Hint> hint;
  for (int look = 0; look < kLooks; ++look) {
    auto seen = std::make_unique<Seen>();
    const std::string found = status.ToString();  // By the look before.
    status = Look(seen.get());
    if (status.ok()) return seen;
    const bool may_move = status.code() == StatusCode::kCorruption ||
                          status.code() == StatusCode::kNotFound ||
                          status.code() == StatusCode::kStale;
    // Two that moved under it at the same checkpoint are two errors.
    const bool same = look > 0 && seen->manifest.number == checkpoint && seen->hint == hint &&
                      status.ToString() == found;
    if (!may_move || (same && status.code() != StatusCode::kStale)) {
      return io::GoneIsDamage(status);
    }
    checkpoint = seen->manifest.number;
    hint = seen->hint;
  }
  return Status(
      StatusCode::kStale,
      path_ + ": the writer replaces files faster than they are read (" + status.ToString() + ")");
}

// The first look. Nothing is put into the directory.
Status StoreCore::OpenFollower() {
  auto manifest = engine::ReadManifest(*world_.files, path_);
  if (manifest.status().code() == StatusCode::kNotFound) return NoStoreHere(": no store here");
  if (!manifest.ok()) return manifest.status();
  manifest_.Show(std::move(*manifest), 0);
  CAIRN_RETURN_IF_ERROR(CheckSegmentBytes());
  CAIRN_ASSIGN_OR_RETURN(options_file_, engine::ReadOptionsFile(*world_.files, path_));
  SetTableContext();
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Seen> seen, LookAgain());
  NoteRecovery(seen->log, seen->whole);
  space_.retirer().SetLogStart(seen->manifest.log_start_segment);
  manifest_.Show(std::move(seen->manifest), seen->log.last_sequence);
  tree_ = std::move(seen->tree);
  seen_hint_ = seen->hint;
  beside_writer_ = seen->beside_writer;
  return StartLog(std::move(seen->log));
}

Result<RefreshResult> StoreCore::Refresh() {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (!options_.read_only) {
    return Status(StatusCode::kInvalidState, path_ + ": a store that writes shows all there is");
  }
  return Follow(/*look_anyway=*/false);
}

// Reads that are under way end with the files that they have open; what they find overwritten, they
// look for anew.
Result<RefreshResult> StoreCore::Follow(bool look_anyway) {
  const io::Turn::Holder turn(&follow_turn_);
  // What was opened is read on where it was moved to; but who asks for what is new at the path must
  // not be told that nothing is.
  CAIRN_ASSIGN_OR_RETURN(const bool replaced, world_.files->IsReplaced(path_));
  if (replaced) {
    return Status(StatusCode::kInvalidState,
                  path_ + ": another directory has taken its place; open that");
  }
  RefreshResult result{.changed = false, .sequence = log_->last_reserved_sequence()};
  if (!look_anyway && seen_hint_.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(const bool beside_writer, WriterLives());
    const auto hint = engine::ReadHint(*world_.files, path_, store_id());
    if (beside_writer == beside_writer_ && hint == seen_hint_) return result;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Seen> seen, LookAgain());
  if (seen->log.last_sequence < result.sequence) {
    return Status(StatusCode::kCorruption, path_ + ": the log ends with sequence " +
                                               std::to_string(seen->log.last_sequence) +
                                               ", but has been seen up to " +
                                               std::to_string(result.sequence));
  }
  result.changed = seen->log.last_sequence != result.sequence;
  result.sequence = seen->log.last_sequence;
  engine::Tree before;  // Made here: a Tree is assigned without memory, but not constructed.
  static_assert(std::is_nothrow_move_assignable_v<engine::Tree>);
  // First: what the new tree names must be there to be opened. Behind it nothing may fail: what is
  // remembered of this look must be what is shown.
  CAIRN_RETURN_IF_ERROR(log_->Follow(std::move(seen->log)));
  seen_hint_ = seen->hint;
  beside_writer_ = seen->beside_writer;
  const uint64_t log_start = seen->manifest.log_start_segment;
  manifest_.Show(std::move(seen->manifest), result.sequence);
  {
    std::lock_guard lock(mutex_);
    seen->tree.SetGeneration(tree_.generation() + 1);
    before = std::move(tree_);  // Taken apart without the lock.
    tree_ = std::move(seen->tree);
    space_.retirer().SetLogStart(log_start);
  }
  for (const auto& [number, use] : before.tables()) {
    {
      std::lock_guard lock(mutex_);
      if (tree_.tables().contains(number)) continue;
    }
    reader_.tables().Forget(number);
  }
  return result;
}

}  // namespace cairn
