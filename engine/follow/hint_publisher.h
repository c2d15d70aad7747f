// SPDX-License-Identifier: Apache-2.0
//
// The writer's part of reading beside it: the hint (follow/hint.h) shows readers how far log and
// manifest are. Thread-safe, except Start. Publish waits for I/O, so no lock may be held around
// it; PublishSoon never blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/io/executor.h"
#include "base/io/world.h"
#include "cairn/options.h"
#include "engine/commit/timer.h"
#include "engine/follow/hint.h"
#include "engine/manifest/manifest_store.h"
#include "wal/log.h"

namespace cairn::engine {

class HintPublisher {
 public:
  // `open`: whether the store is; otherwise PublishSoon does nothing. `on_event` is called when the
  // hint cannot be written. All outlive this.
  HintPublisher(const io::World& world, const std::string& directory, const Options* options,
                const ManifestStore* manifest, const std::atomic<bool>* open,
                std::function<void(const std::string&)> on_event)
      : world_(world),
        options_(*options),
        manifest_(*manifest),
        open_(*open),
        on_event_(std::move(on_event)),
        writer_(*world_.files, directory) {}
  HintPublisher(const HintPublisher&) = delete;
  HintPublisher& operator=(const HintPublisher&) = delete;

  // Before the first of the calls below.
  void Start(const wal::Log* log, Timer* timer, io::Executor* executor);
  // Does not name the newest manifest before that is completely written; calls may overlap.
  void Publish();
  // The log has got further.
  void PublishSoon(uint64_t durable_sequence);
  // Publishes nothing from here on; closes the file.
  void Close();

 private:
  const io::World world_;
  const Options& options_;
  const ManifestStore& manifest_;
  const std::atomic<bool>& open_;
  const std::function<void(const std::string&)> on_event_;
  const wal::Log* log_ = nullptr;
  Timer* timer_ = nullptr;
  io::Executor* executor_ = nullptr;

  io::Turn turn_{*world_.scheduler};
  HintWriter writer_;  // The turn guards both.
  bool failed_ = false;
  std::atomic<uint64_t> sequence_{0};  // The durable sequence in the file.
  std::atomic<bool> due_{false};
};

}  // namespace cairn::engine
