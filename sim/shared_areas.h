// SPDX-License-Identifier: Apache-2.0
//
// Areas of the simulated machine (base/io/shared_area.h). Its processes are objects, which may be
// killed and stopped: what a killed one created cannot be mapped any more, and an area is gone with
// the last process that has it. Waiting takes virtual time. Directories are those of the World.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/shared_area.h"
#include "base/io/world.h"

namespace cairn::io {

class SimAreas;

// A process of the machine.
class SimAreaProcess final : public SharedAreas {
 public:
  ~SimAreaProcess() override;
  Result<std::unique_ptr<SharedArea>> Create(const std::string& directory, uint64_t bytes) override;
  Result<std::unique_ptr<SharedArea>> Map(const std::string& address) override;

  // All it has is taken from it: its areas have no bytes.
  void Kill();
  // It answers nobody until it goes on.
  void Stop(bool stopped);

 private:
  friend class SimAreas;
  class Area;
  struct State;
  SimAreaProcess(SimAreas* machine, std::shared_ptr<State> state);
  SimAreas& machine_;
  const std::shared_ptr<State> state_;
};

class SimAreas {
 public:
  explicit SimAreas(World world) : world_(std::move(world)) {}
  ~SimAreas();  // After its processes and areas.

  std::unique_ptr<SimAreaProcess> NewProcess(uint64_t user = 1000);
  // The n-th Create or Map from now on fails: kOutOfMemory, kIoError. The next is 0.
  void FailAt(uint64_t call);
  // Areas that some process has.
  size_t living() const;

 private:
  friend class SimAreaProcess;
  struct Shared {
    std::vector<std::byte> bytes;
    AreaAddress address;
    std::shared_ptr<SimAreaProcess::State> creator;
    AreaCounts counts;
  };
  bool Fails();

  World world_;
  mutable Mutex mutex_;
  // By the path of the socket.
  std::map<std::string, std::weak_ptr<Shared>> areas_ CAIRN_GUARDED_BY(mutex_);
  uint64_t calls_ CAIRN_GUARDED_BY(mutex_) = 0, fail_at_ CAIRN_GUARDED_BY(mutex_) = UINT64_MAX;
};

}  // namespace cairn::io
