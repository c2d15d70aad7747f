// SPDX-License-Identifier: Apache-2.0
//
// Reading beside a writer. The reader takes nothing and is not known: it looks at the checkpoint,
// the index and the log as they are, and looks again when files went under its feet. The writer's
// part is the hint (follow/hint_publisher.h).
//
// A look is taken from the files alone; what it has seen is then shown, under the commit lock.
// Looks take turns. Thread-safe, but for what is marked; no lock may be held around any of it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/io/executor.h"
#include "base/io/world.h"
#include "cairn/options.h"
#include "cairn/store.h"
#include "engine/commit/committer.h"
#include "engine/follow/hint.h"
#include "engine/manifest/manifest_keeper.h"
#include "engine/restore/reader.h"
#include "engine/tree/tree.h"
#include "wal/log.h"

namespace cairn::engine {

// What a look has seen of a store.
struct Seen {
  bool beside_writer = false;
  std::optional<Hint> hint{};
  Manifest manifest{};
  Tree tree{};
  wal::RecoveredLog log{};
  Status whole{};  // Not Ok: cut, and salvaged.
};

// What following asks of the store.
class FollowHost {
 public:
  virtual ~FollowHost() = default;
  // The tree as the checkpoint has it, with what the log has beyond, as at any opening.
  virtual Status ReadTree(const Manifest& manifest, const wal::RecoveryOptions& recovery,
                          Tree* tree, wal::RecoveredLog* log) = 0;
  // kCorruption: what the checkpoint says was durable is not there.
  virtual Status CheckLogIsWhole(const Manifest& manifest, const wal::RecoveredLog& log) const = 0;
  // What is found by the checkpoint is opened, for the tree that is shown next.
  virtual void PrepareShow(const Manifest& manifest) = 0;
  // The tree is shown; who reads the whole log begins here. Under the commit lock.
  virtual void OnShown(uint64_t log_start) = 0;
};

class Follower {
 public:
  // All outlive this.
  struct Means {
    io::World world;
    std::string directory;
    const Options* options = nullptr;
    FollowHost* host = nullptr;
    ManifestKeeper* manifest = nullptr;
    Committer* committer = nullptr;
    Reader* reader = nullptr;
  };
  explicit Follower(Means means) : means_(std::move(means)) {}
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // --- The opening's, by one thread.
  // The first look, which the store begins with. kStale: files are replaced too fast.
  Result<std::unique_ptr<Seen>> LookFirst();
  void SetLog(wal::Log* log) { log_ = log; }

  // Shows what there is by now. Reads that are under way end with the files that they have open;
  // what they find overwritten, they look for anew. `look_anyway`: else only where the hint or who
  // writes have changed.
  Result<RefreshResult> Follow(bool look_anyway);
  Result<bool> WriterLives() const;
  // Behind the opening of a file that is known by its name: whether it is the same store's still.
  Status ConfirmFile() const;

 private:
  Result<std::unique_ptr<Seen>> LookAgain();
  Status Look(Seen* seen);
  Status CheckHistory(const Manifest& manifest) const;

  const Means means_;
  wal::Log* log_ = nullptr;
  io::Turn turn_{*means_.world.scheduler};
  std::optional<Hint> seen_hint_;  // The turn guards both.
  bool beside_writer_ = false;
};

}  // namespace cairn::engine
