// SPDX-License-Identifier: Apache-2.0
#include "cairn/shared_memory.h"

#include <utility>

#include "base/core/out_of_memory.h"
#include "base/io/posix_shared_areas.h"
#include "base/io/real_scheduler.h"

namespace cairn {

namespace {

std::unique_ptr<io::SharedAreas> Areas() {
  return io::MakePosixSharedAreas(std::make_shared<io::RealScheduler>());
}

}  // namespace

SharedMemory::SharedMemory(std::shared_ptr<io::SharedArea> area) : area_(std::move(area)) {}

Result<SharedMemory> SharedMemory::Create(const std::string& directory, uint64_t bytes) {
  return CatchBadAlloc([&]() -> Result<SharedMemory> {
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<io::SharedArea> area, Areas()->Create(directory, bytes));
    return SharedMemory(std::shared_ptr<io::SharedArea>(std::move(area)));
  });
}

Result<SharedMemory> SharedMemory::Map(const std::string& address) {
  return CatchBadAlloc([&]() -> Result<SharedMemory> {
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<io::SharedArea> area, Areas()->Map(address));
    return SharedMemory(std::shared_ptr<io::SharedArea>(std::move(area)));
  });
}

std::span<std::byte> SharedMemory::bytes() const {
  return area_ == nullptr ? std::span<std::byte>() : area_->bytes();
}

const std::string& SharedMemory::address() const {
  static const std::string none;
  return area_ == nullptr ? none : area_->address();
}

bool SharedMemory::valid() const { return area_ != nullptr; }
bool SharedMemory::is_creator() const { return area_ != nullptr && area_->is_creator(); }
uint64_t SharedMemory::mapped() const { return area_ == nullptr ? 0 : area_->counts().mapped; }
uint64_t SharedMemory::refused() const { return area_ == nullptr ? 0 : area_->counts().refused; }

}  // namespace cairn
