// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ring_pipeline.h"

#include <cstring>

#include "base/core/check.h"
#include "base/core/seeded_random.h"
#include "base/io/world.h"

namespace cairn::testing {
namespace {

constexpr uint32_t kSlots = 2;
constexpr uint32_t kWindows = 7;
constexpr uint64_t kWindowBytes = 256;

class RingPipeline {
 public:
  RingPipeline(gpu::Device& device, Left left) : device_(device), left_(left) {}

  Status Run(uint64_t seed, std::vector<std::byte>* result, std::vector<std::byte>* expected) {
    CAIRN_RETURN_IF_ERROR(Prepare());
    SeededRandom random(seed);
    for (uint32_t window = 0; window < kWindows; ++window) {
      CAIRN_RETURN_IF_ERROR(Window(window, random, expected));
    }
    const gpu::CopyPiece back{results_, out_, kWindows * kWindowBytes};
    CAIRN_RETURN_IF_ERROR(device_.Copy(work_, {&back, 1}));
    CAIRN_RETURN_IF_ERROR(device_.Record(work_, end_));
    if (left_ != Left::kDone) CAIRN_RETURN_IF_ERROR(device_.Wait(end_, io::kNoDeadline));
    result->assign(results_, results_ + kWindows * kWindowBytes);
    return Status::Ok();
  }

 private:
  Status Prepare() {
    CAIRN_ASSIGN_OR_RETURN(pinned_, device_.Allocate(gpu::Memory::kPinned, kSlots * kWindowBytes));
    CAIRN_ASSIGN_OR_RETURN(results_,
                           device_.Allocate(gpu::Memory::kPinned, kWindows * kWindowBytes));
    CAIRN_ASSIGN_OR_RETURN(ring_, device_.Allocate(gpu::Memory::kDevice, kSlots * kWindowBytes));
    CAIRN_ASSIGN_OR_RETURN(out_, device_.Allocate(gpu::Memory::kDevice, kWindows * kWindowBytes));
    CAIRN_ASSIGN_OR_RETURN(copy_, device_.NewStream(gpu::Priority::kHigh));
    CAIRN_ASSIGN_OR_RETURN(work_, device_.NewStream(gpu::Priority::kLow));
    CAIRN_ASSIGN_OR_RETURN(end_, device_.NewEvent());
    for (uint32_t i = 0; i < kSlots; ++i) {
      CAIRN_ASSIGN_OR_RETURN(copied_[i], device_.NewEvent());
      CAIRN_ASSIGN_OR_RETURN(worked_[i], device_.NewEvent());
    }
    return Status::Ok();
  }

  Status Window(uint32_t window, SeededRandom& random, std::vector<std::byte>* expected) {
    const uint32_t slot = window % kSlots;
    std::byte* const pinned = pinned_ + slot * kWindowBytes;
    std::byte* const ring = ring_ + slot * kWindowBytes;
    // Never recorded in the first round: there is nothing to wait for.
    if (left_ != Left::kPinnedSlot) {
      CAIRN_RETURN_IF_ERROR(device_.Wait(copied_[slot], io::kNoDeadline));
    }
    for (uint64_t i = 0; i < kWindowBytes; ++i) {
      pinned[i] = static_cast<std::byte>(random.Next());
      expected->push_back(pinned[i]);
    }
    if (left_ != Left::kDeviceSlot) {
      CAIRN_RETURN_IF_ERROR(device_.StreamWait(copy_, worked_[slot]));
    }
    const gpu::CopyPiece in{ring, pinned, kWindowBytes};
    CAIRN_RETURN_IF_ERROR(device_.Copy(copy_, {&in, 1}));
    CAIRN_RETURN_IF_ERROR(device_.Record(copy_, copied_[slot]));
    if (left_ != Left::kCopied) {
      CAIRN_RETURN_IF_ERROR(device_.StreamWait(work_, copied_[slot]));
    }
    const gpu::CopyPiece work{out_ + window * kWindowBytes, ring, kWindowBytes};
    CAIRN_RETURN_IF_ERROR(device_.Copy(work_, {&work, 1}));
    return device_.Record(work_, worked_[slot]);
  }

  gpu::Device& device_;
  const Left left_;
  std::byte *pinned_ = nullptr, *results_ = nullptr, *ring_ = nullptr, *out_ = nullptr;
  gpu::Stream copy_, work_;
  gpu::Event end_, copied_[kSlots], worked_[kSlots];
};

}  // namespace

Status RunRingPipeline(gpu::Device& device, Left left, uint64_t seed,
                       std::vector<std::byte>* result, std::vector<std::byte>* expected) {
  return RingPipeline(device, left).Run(seed, result, expected);
}

}  // namespace cairn::testing
