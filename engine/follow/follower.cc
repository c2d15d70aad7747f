// SPDX-License-Identifier: Apache-2.0
#include "engine/follow/follower.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/io/file_util.h"
#include "engine/config/constants.h"

namespace cairn::engine {

namespace {

// Attempts of one refresh while the writer replaces files. An attempt takes milliseconds; a new
// MANIFEST comes every few thousand records.
constexpr int kReadAttempts = 8;

}  // namespace

Result<std::unique_ptr<RefreshedState>> Follower::ReadFirst() {
  auto state = ReadUntilStable();
  if (state.ok()) {
    last_hint_ = (*state)->hint;
    beside_writer_ = (*state)->beside_writer;
  }
  return state;
}

Result<bool> Follower::WriterLives() const {
  if (deps_.options->recovery == Recovery::kSetAside)
    return false;  // A repair has the store to itself.
  return deps_.world.files->IsLocked(io::JoinPath(deps_.directory, kLockFile));
}

// Whether everything seen of the store is so in this manifest's, too: then files that were read
// do not change, and neither do those known by name.
Status Follower::CheckHistory(const Manifest& manifest) const {
  if (!CAIRN_KEPT(kHistoryIsCompared)) return Status::Ok();
  if (deps_.manifest->IsContinuedBy(manifest)) return Status::Ok();
  return Status(StatusCode::kInvalidState,
                deps_.directory +
                    ": another history of the store has taken its place, as when a backup is " +
                    "put there; open it anew");
}

// Call after opening a file by its name.
Status Follower::ConfirmFile() const {
  if (deps_.manifest->number() == 0)
    return Status::Ok();  // Nothing was seen that it could differ from.
  auto manifest = ReadManifest(*deps_.world.files, deps_.directory);
  if (manifest.status().code() == StatusCode::kNotFound) {
    return Status(StatusCode::kStale, deps_.directory + ": no MANIFEST: it is being replaced");
  }
  if (!manifest.ok()) return manifest.status();
  return CheckHistory(*manifest);
}

// Reads everything once. Beside a writer only what is known to be durable counts: the hint says
// it, or the log itself. Without a writer everything counts, as for the next writer.
Status Follower::TryRead(RefreshedState* state) {
  io::FileSystem& files = *deps_.world.files;
  CAIRN_ASSIGN_OR_RETURN(state->beside_writer, WriterLives());
  state->hint = ReadHint(files, deps_.directory, deps_.manifest->store());
  CAIRN_ASSIGN_OR_RETURN(state->manifest, ReadManifest(files, deps_.directory));
  if (state->manifest.store.bytes != deps_.manifest->store().bytes) {
    return Status(StatusCode::kInvalidState,
                  deps_.directory + ": another store has taken its place");
  }
  CAIRN_RETURN_IF_ERROR(CheckHistory(state->manifest));
  // A durable sequence of another history's writer proves nothing here.
  if (state->hint.has_value() && state->hint->history != state->manifest.history.id) {
    state->hint.reset();
  }
  for (const bool hinted : {true, false}) {
    wal::RecoveryOptions recovery;
    recovery.read_only = true;
    recovery.salvage = deps_.options->recovery == Recovery::kSetAside;
    if (state->beside_writer) {
      recovery.following = true;
      recovery.stop_after = state->manifest.last_sequence;
      // Records that were shown once stay: they were durable, or a later writer has made them so.
      if (log_ != nullptr) {
        recovery.stop_after = std::max(recovery.stop_after, log_->last_reserved_sequence());
      }
      if (hinted && state->hint.has_value()) {
        recovery.stop_after = std::max(recovery.stop_after, state->hint->durable);
      }
    }
    state->tree = Tree();
    CAIRN_RETURN_IF_ERROR(deps_.callbacks->ReadTree(&state->manifest, recovery, &state->tree,
                                                    &state->log, &state->lost));
    // An earlier writer's hint proves nothing about records that a salvage put in place of lost
    // ones.
    const bool outdated = state->hint.has_value() && !state->log.segments.empty() &&
                          state->hint->epoch < state->log.segments.back().epoch;
    if (!state->beside_writer || !outdated) break;
    state->hint.reset();
  }
  state->whole = deps_.callbacks->CheckLogIsWhole(state->manifest, state->log);
  if (!state->whole.ok() && (deps_.options->recovery == Recovery::kRefuse ||
                             state->whole.code() != StatusCode::kCorruption)) {
    return state->whole;
  }
  // Manifest and hint were read before, with everything they name.
  CAIRN_ASSIGN_OR_RETURN(const Manifest still, ReadManifest(files, deps_.directory));
  if (still.history.id != state->manifest.history.id) {
    return Status(StatusCode::kStale, deps_.directory + ": it was replaced while it was read");
  }
  if (state->beside_writer) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const bool came, WriterLives());
  if (!came) return Status::Ok();
  return Status(StatusCode::kStale, deps_.directory + ": a writer came while the store was read");
}

// Reads until no file is replaced meanwhile. An error that two attempts in a row find alike is
// returned.
Result<std::unique_ptr<RefreshedState>> Follower::ReadUntilStable() {
  Status status;
  uint64_t last_manifest = 0;
  std::optional<Hint> hint;
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    auto state = std::make_unique<RefreshedState>();
    const std::string found = status.ToString();  // What the attempt before met.
    status = TryRead(state.get());
    if (status.ok()) return state;
    const bool may_move = status.code() == StatusCode::kCorruption ||
                          status.code() == StatusCode::kNotFound ||
                          status.code() == StatusCode::kStale;
    // Being kStale twice at one manifest is not the same error twice.
    const bool same = attempt > 0 && state->manifest.number == last_manifest &&
                      state->hint == hint && status.ToString() == found;
    if (!may_move || (same && status.code() != StatusCode::kStale)) {
      return io::MissingIsCorruption(status);
    }
    last_manifest = state->manifest.number;
    hint = state->hint;
  }
  return Status(StatusCode::kStale, deps_.directory +
                                        ": the writer replaces files faster than they are read (" +
                                        status.ToString() + ")");
}

Result<RefreshResult> Follower::Refresh(bool read_anyway) {
  const io::Turn::Holder turn(&turn_);
  // Open files are still read where they were moved to; but a caller that asks for news at the path
  // must not hear that there are none.
  CAIRN_ASSIGN_OR_RETURN(const bool replaced, deps_.world.files->IsReplaced(deps_.directory));
  if (replaced) {
    return Status(StatusCode::kInvalidState,
                  deps_.directory + ": another directory has taken its place; open that");
  }
  RefreshResult result{.changed = false, .sequence = log_->last_reserved_sequence()};
  if (!read_anyway && last_hint_.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(const bool beside_writer, WriterLives());
    const auto hint = ReadHint(*deps_.world.files, deps_.directory, deps_.manifest->store());
    if (beside_writer == beside_writer_ && hint == last_hint_) return result;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<RefreshedState> state, ReadUntilStable());
  if (state->log.last_sequence < result.sequence) {
    return Status(StatusCode::kCorruption, deps_.directory + ": the log ends with sequence " +
                                               std::to_string(state->log.last_sequence) +
                                               ", but has been seen up to " +
                                               std::to_string(result.sequence));
  }
  result.changed = state->log.last_sequence != result.sequence;
  result.sequence = state->log.last_sequence;
  Tree before;  // Made here: assigning a Tree needs no memory, constructing one does.
  static_assert(std::is_nothrow_move_assignable_v<Tree>);
  // First, since it may fail: opens what the new tree names. Nothing after it may fail, since the
  // state kept of this refresh must be the one that is shown.
  deps_.callbacks->PrepareShow(state->manifest, state->hint);
  CAIRN_RETURN_IF_ERROR(log_->Follow(std::move(state->log), state->manifest.resting));
  last_hint_ = state->hint;
  beside_writer_ = state->beside_writer;
  const uint64_t log_start = state->manifest.log_start_segment;
  deps_.manifest->Show(std::move(state->manifest), result.sequence);
  Tree& tree = deps_.committer->tree();
  {
    std::lock_guard lock(deps_.committer->mutex());
    state->tree.SetGeneration(tree.generation() + 1);
    before = std::move(tree);  // Destroyed without the lock.
    tree = std::move(state->tree);
    deps_.callbacks->OnShown(log_start);
  }
  for (const auto& [number, use] : before.tables()) {
    {
      std::lock_guard lock(deps_.committer->mutex());
      if (tree.tables().contains(number)) continue;
    }
    deps_.reader->ForgetTable(number);
  }
  return result;
}

}  // namespace cairn::engine
