// SPDX-License-Identifier: Apache-2.0
//
// The last tier: everything that the items still lack is read from the segments of the log and from
// tables, in one pipeline. First the reads that are known from the start: records, small fragments
// as a whole, and the entries of large ones; then the frames that these entries name.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/restore/pipeline.h"
#include "engine/restore/plan/page_tier.h"

namespace cairn::engine {

// The purpose of a read. The space thread reads smaller pieces, at its rate, helped by threads of
// its own, and nothing is cached. A prefetch reads for the page cache, without helpers.
enum class ReadFor : uint8_t { kCaller, kSpace, kPrefetch };

// How one run of the pipeline reads.
struct ReadDeps {
  io::World world{};
  io::Executor* executor = nullptr;
  uint32_t helpers = 0;  // At most.
  ReadPool* pool = nullptr;
  wal::Log* log = nullptr;
  uint64_t deadline_ns = io::kNoDeadline;
  ReadLimits limits{};
  // Called before a window is read. Empty: nothing to do.
  std::function<Status(uint64_t bytes)> before_read{};
};

class FileTier final : public PageTier, public PipelineCallbacks {
 public:
  explicit FileTier(const ReadDeps& deps) : deps_(deps) {}
  void Serve(std::span<ItemRun> items) override;

  // --- PipelineCallbacks
  Result<std::shared_ptr<io::File>> OpenFor(const ReadJob& job, bool waits) override;
  Status Work(const ReadJob& job, const ReadBytes& bytes, uint64_t* first_position) override;
  void WindowDone(std::span<const ReadJob> jobs, size_t buffer) override;
  Status BeforeRead(uint64_t bytes) override {
    return deps_.before_read ? deps_.before_read(bytes) : Status::Ok();
  }
  ReadLimits Limits() const override { return deps_.limits; }
  ItemOutcome& OutcomeOf(const ReadJob& job) override { return items_[job.item].outcome; }
  bool AnyWanted() override;
  void StopAll(const Status& status) override;
  bool Reclaim(uint64_t deadline_ns) override;

 private:
  void AddRecords();
  void AddFragments();
  void AddFrames();
  Status WorkOnFragment(size_t item, size_t piece, const ReadBytes& bytes,
                        uint64_t* first_position);
  OpenPiece& PieceOf(const ReadJob& job);
  uint32_t LayerOf(const ReadJob& job);

  const ReadDeps& deps_;
  std::span<ItemRun> items_;
  std::vector<FrameJob> frames_;
  std::vector<ReadJob> jobs_;
};

}  // namespace cairn::engine
