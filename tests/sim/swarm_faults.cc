// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/swarm_faults.h"

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/core/check.h"

namespace cairn::sim {
namespace {

constexpr uint64_t kSlowNs = 50'000'000;
constexpr uint64_t kStuckNs = 20'000'000'000;
constexpr uint64_t kHealthyOperations = 60;  // Operations of each disk before it lies or breaks.

bool IsWrite(io::SimOp op) { return op == io::SimOp::kWrite || op == io::SimOp::kDurableWrite; }

}  // namespace

bool SwarmFaults::Draw(Feature feature) {
  const auto index = static_cast<size_t>(feature);
  if (!on_ || !config_.has(feature) || random_.Below(config_.one_in[index]) != 0) return false;
  ++strikes_[index];
  return true;
}

void SwarmFaults::Strike(io::SimDisk* disk) {
  disk_ = disk;
  broken_ = lost_sync_ = false;
  // Operations that change nothing have no hook; each kind of fault asks for itself.
  const auto add = [&](Feature feature, io::SimFault fault) {
    fault.persistent = true;
    fault.when = [this, feature](const io::SimOperation& operation) {
      return !operation.changes_world() && DrawTransfer(feature, operation);
    };
    disk->AddFault(std::move(fault));
  };
  const auto error = [](int number) {
    io::SimFault fault;
    fault.error = number;
    return fault;
  };
  add(Feature::kErrors, error(EIO));
  add(Feature::kInterrupts, error(EINTR));
  add(Feature::kInterrupts, error(EAGAIN));
  add(Feature::kCancelled, error(ECANCELED));
  io::SimFault fault;
  fault.transferred = 512;
  add(Feature::kShort, fault);
  fault = {};
  fault.delay_ns = kSlowNs;
  add(Feature::kSlow, fault);
  fault.delay_ns = kStuckNs;
  add(Feature::kStuck, fault);
}

bool SwarmFaults::DrawTransfer(Feature feature, const io::SimOperation& operation) {
  if (feature == Feature::kShort && operation.op != io::SimOp::kRead) return false;
  return Draw(feature);
}

io::SimPlace SwarmFaults::Anywhere() {
  const std::vector<std::string> files = disk_->Files();
  io::SimPlace place{.path = files[random_.Below(files.size())]};
  const bool on = std::exchange(on_, false);  // This look is none of the engine's.
  const auto info = disk_->Info(place.path);
  on_ = on;
  CAIRN_CHECK(info.ok());
  place.offset = random_.Below(info->bytes / io::kSimSectorBytes + 1) * io::kSimSectorBytes;
  return place;
}

void SwarmFaults::Rot() {
  io::SimPlace place = Anywhere();
  place.offset += random_.Below(io::kSimSectorBytes);
  lied_ = lied_ || disk_->FlipBit(place.path, place.offset, random_.Below(8)).ok();
}

void SwarmFaults::BeforeOperation(const io::SimOperation& operation) {
  const bool writes = IsWrite(operation.op);
  const bool early = operation.index < kHealthyOperations;
  io::SimFault fault;
  fault.at_index = operation.index;
  if (!early && Draw(Feature::kRot)) Rot();
  if (!early && !broken_ && Draw(Feature::kBroken)) broken_ = true;
  if (broken_ && on_) {
    fault.error = EIO;
  } else if (Draw(Feature::kErrors)) {
    fault.error = EIO;
    fault.transferred = random_.Below(3) * io::kSimSectorBytes;
  } else if (Draw(Feature::kFullErrors)) {
    fault.error = ENOSPC;
  } else if (Draw(Feature::kInterrupts)) {
    fault.error = random_.Below(2) == 0 ? EINTR : EAGAIN;
    if (writes) fault.transferred = random_.Below(2) * io::kSimSectorBytes;
  } else if (Draw(Feature::kCancelled)) {
    fault.error = ECANCELED;
  } else if (operation.op == io::SimOp::kSync && Draw(Feature::kLosingSyncs)) {
    fault.error = EIO;
    fault.loses_unsynced = lost_sync_ = true;
  } else if (writes && !early && Draw(Feature::kLost)) {
    fault.lost = lied_ = true;
  } else if (writes && !early && Draw(Feature::kMisdirected)) {
    fault.misdirected = Anywhere();
    lied_ = true;
  } else if (writes && Draw(Feature::kShort)) {
    fault.transferred = (1 + random_.Below(3)) * io::kSimSectorBytes;
  } else if (Draw(Feature::kStuck)) {
    fault.delay_ns = kStuckNs;
  } else if (Draw(Feature::kSlow)) {
    fault.delay_ns = kSlowNs;
  } else {
    return;
  }
  disk_->AddFault(std::move(fault));
}

}  // namespace cairn::sim
