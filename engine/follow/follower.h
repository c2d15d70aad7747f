// SPDX-License-Identifier: Apache-2.0
//
// Reading beside a writer. The reader locks nothing and the writer does not know of it: it reads
// the manifest, the index and the log as they are, and reads them again when files disappear
// meanwhile. The writer's part is the hint (follow/hint_publisher.h).
//
// A refresh reads the files alone; its result is then shown, under the commit lock. Refreshes take
// turns.
// Thread-safe, except where marked; no lock may be held around any call.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/io/executor.h"
#include "base/io/world.h"
#include "cairn/options.h"
#include "cairn/store_types.h"
#include "engine/commit/committer.h"
#include "engine/follow/hint.h"
#include "engine/manifest/manifest_store.h"
#include "engine/restore/reader.h"
#include "engine/tree/memory/tree.h"
#include "wal/log.h"

namespace cairn::engine {

// The state of a store as one refresh read it.
struct RefreshedState {
  bool beside_writer = false;
  std::optional<Hint> hint{};
  Manifest manifest{};
  Tree tree{};
  wal::RecoveredLog log{};
  Status whole{};      // Not Ok: the log was truncated, and salvaged.
  std::string lost{};  // For people; empty: nothing.
};

// Services that following needs from the store.
class FollowCallbacks {
 public:
  virtual ~FollowCallbacks() = default;
  // Reads the tree of the manifest and the log behind it, as any opening does. `note`: what was
  // lost, if that is set aside; then the manifest does not name hints that know of it.
  virtual Status ReadTree(Manifest* manifest, const wal::RecoveryOptions& recovery, Tree* tree,
                          wal::RecoveredLog* log, std::string* note) = 0;
  // kCorruption: something is missing that was durable according to the manifest.
  virtual Status CheckLogIsWhole(const Manifest& manifest, const wal::RecoveredLog& log) const = 0;
  // Opens what the manifest names, for the tree that is shown next.
  virtual void PrepareShow(const Manifest& manifest, const std::optional<Hint>& hint) = 0;
  // The tree is shown; a reader of the whole log begins at `log_start`. Under the commit lock.
  virtual void OnShown(uint64_t log_start) = 0;
};

class Follower {
 public:
  // All outlive this.
  struct Deps {
    io::World world;
    std::string directory;
    const Options* options = nullptr;
    FollowCallbacks* callbacks = nullptr;
    ManifestStore* manifest = nullptr;
    Committer* committer = nullptr;
    Reader* reader = nullptr;
  };
  explicit Follower(Deps deps) : deps_(std::move(deps)) {}
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // --- For the opening, by one thread.
  // The first refresh, from which the store begins. kStale: files are replaced too fast.
  Result<std::unique_ptr<RefreshedState>> ReadFirst();
  void SetLog(wal::Log* log) { log_ = log; }

  // Shows the present state. Reads under way end with the files that they have open, and look again
  // for those that they find overwritten. Without `read_anyway` only if the hint or the writer has
  // changed.
  Result<RefreshResult> Refresh(bool read_anyway);
  Result<bool> WriterLives() const;
  // Call after opening a file by its name: checks that it is still the same store's.
  Status ConfirmFile() const;

 private:
  Result<std::unique_ptr<RefreshedState>> ReadUntilStable();
  Status TryRead(RefreshedState* state);
  Status CheckHistory(const Manifest& manifest) const;

  const Deps deps_;
  wal::Log* log_ = nullptr;
  io::Turn turn_{*deps_.world.scheduler};
  std::optional<Hint> last_hint_;  // The turn guards both.
  bool beside_writer_ = false;
};

}  // namespace cairn::engine
