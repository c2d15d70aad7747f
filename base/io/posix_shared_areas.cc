// SPDX-License-Identifier: Apache-2.0
#include "base/io/posix_shared_areas.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/core/align.h"
#include "base/io/area_socket.h"
#include "base/io/fork_memory.h"
#include "base/io/os_error.h"
#include "base/io/page_bytes.h"
#include "base/io/path.h"

namespace cairn::io {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
// Memory is taken in pieces of this size: a signal interrupts one, and not all of it.
constexpr uint64_t kTakenBytes = 64u << 20;

// The id of the running kernel, which all processes and containers of a host have in common; empty
// where /proc does not show it.
std::string HostId() {
  const UniqueFd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[64];
  const ssize_t size = file.valid() ? read(file.get(), text, sizeof text) : 0;
  std::string id;
  for (ssize_t i = 0; i < size; ++i) {
    if (text[i] != '-' && text[i] != '\n') id += text[i];
  }
  return id.size() == 32 ? id : std::string();
}

// Without a page table entry for each page the first copy would take a fault for each.
class Mapping {
 public:
  static Result<std::unique_ptr<Mapping>> Make(int fd, uint64_t bytes, const std::string& name,
                                               Scheduler* scheduler) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (at == MAP_FAILED) return OsError(errno, "mmap", name);
    std::unique_ptr<Mapping> mapping(
        new Mapping({static_cast<std::byte*>(at), static_cast<size_t>(bytes)}, scheduler));
    KeepFromChildren(mapping->bytes_);
    return mapping;
  }
  ~Mapping() {
    if (IsHere()) munmap(bytes_.data(), bytes_.size());
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  // A child of fork() has something else at these addresses, or nothing.
  bool IsHere() const { return scheduler_.ProcessId() == process_; }
  std::span<std::byte> bytes() const { return IsHere() ? bytes_ : std::span<std::byte>(); }

 private:
  Mapping(std::span<std::byte> bytes, Scheduler* scheduler)
      : bytes_(bytes), scheduler_(*scheduler), process_(scheduler->ProcessId()) {}
  const std::span<std::byte> bytes_;
  Scheduler& scheduler_;
  const uint64_t process_;
};

class PosixArea final : public SharedArea {
 public:
  PosixArea(std::shared_ptr<Scheduler> scheduler, std::string address)
      : scheduler_(std::move(scheduler)), address_(std::move(address)) {}

  std::span<std::byte> bytes() const override { return mapping_->bytes(); }
  const std::string& address() const override { return address_; }
  bool is_creator() const override { return server_ != nullptr; }
  AreaCounts counts() const override {
    return server_ == nullptr ? AreaCounts() : server_->counts();
  }

  const std::shared_ptr<Scheduler> scheduler_;
  std::string address_;
  std::unique_ptr<Mapping> mapping_;
  std::unique_ptr<OwnedHere> memory_;
  std::unique_ptr<AreaServer> server_;  // Ends before the memory.
};

// ENOSPC is what memory says that has no room.
Status MemoryError(int error, const char* call, uint64_t bytes) {
  const Status status =
      OsError(error, call, "a shared area of " + std::to_string(bytes) + " bytes");
  if (error != ENOSPC) return status;
  return Status(StatusCode::kOutOfMemory, std::string(status.message()));
}

Status TakeMemory(int fd, uint64_t bytes) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return MemoryError(errno, "ftruncate", bytes);
  for (uint64_t at = 0; at < bytes; at += kTakenBytes) {
    const auto some = static_cast<off_t>(std::min(kTakenBytes, bytes - at));
    if (RetryInterrupted([&] { return fallocate(fd, 0, static_cast<off_t>(at), some); }) != 0) {
      return MemoryError(errno, "fallocate", bytes);
    }
  }
  if (fcntl(fd, F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
    return MemoryError(errno, "fcntl(F_ADD_SEALS)", bytes);
  }
  return Status::Ok();
}

class PosixSharedAreas final : public SharedAreas {
 public:
  PosixSharedAreas(std::shared_ptr<Scheduler> scheduler, uint64_t answer_ns)
      : scheduler_(std::move(scheduler)), answer_ns_(answer_ns) {}

  Result<std::unique_ptr<SharedArea>> Create(const std::string& directory,
                                             uint64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(CheckPath(directory));
    if (bytes == 0 || bytes > kAreaBytesMax) {
      return Status(StatusCode::kInvalidArgument, "bytes of a shared area is " +
                                                      std::to_string(bytes) + "; from 1 to " +
                                                      std::to_string(kAreaBytesMax));
    }
    AreaAddress address;
    address.host = HostId();
    address.bytes = AlignUp(bytes, uint64_t{PageBytes()});
    for (size_t i = 0; i < address.nonce.size(); i += 8) {
      const uint64_t random = scheduler_->Random64();
      for (size_t j = 0; j < 8; ++j) address.nonce[i + j] = static_cast<uint8_t>(random >> 8 * j);
    }
    UniqueFd made(memfd_create("cairn-area", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!made.valid()) return MemoryError(errno, "memfd_create", address.bytes);
    CAIRN_RETURN_IF_ERROR(TakeMemory(made.get(), address.bytes));
    auto area = std::make_unique<PosixArea>(scheduler_, std::string());
    CAIRN_ASSIGN_OR_RETURN(area->mapping_, Mapping::Make(made.get(), address.bytes, "a shared area",
                                                         scheduler_.get()));
    area->memory_ = std::make_unique<OwnedHere>(std::move(made));
    CAIRN_ASSIGN_OR_RETURN(area->server_,
                           AreaServer::Start(directory, area->memory_.get(), &address, scheduler_));
    area->address_ = address.Text();
    return std::unique_ptr<SharedArea>(std::move(area));
  }

  Result<std::unique_ptr<SharedArea>> Map(const std::string& text) override {
    CAIRN_ASSIGN_OR_RETURN(const AreaAddress address, AreaAddress::Parse(text));
    const std::string host = HostId();
    if (!host.empty() && !address.host.empty() && host != address.host) {
      return Status(StatusCode::kNotFound,
                    address.socket + ": the shared area is on another host, or of an earlier boot");
    }
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd given, AskForArea(address, scheduler_.get(), answer_ns_));
    struct stat status {};
    const int seals = fcntl(given.get(), F_GET_SEALS);
    if (fstat(given.get(), &status) != 0 || seals < 0 || (seals & kSeals) != kSeals ||
        static_cast<uint64_t>(status.st_size) != address.bytes) {
      return Status(StatusCode::kIoError,
                    address.socket + ": the memory is not sealed, or of another size");
    }
    auto area = std::make_unique<PosixArea>(scheduler_, text);
    CAIRN_ASSIGN_OR_RETURN(area->mapping_, Mapping::Make(given.get(), address.bytes, address.socket,
                                                         scheduler_.get()));
    return std::unique_ptr<SharedArea>(std::move(area));
  }

 private:
  const std::shared_ptr<Scheduler> scheduler_;
  const uint64_t answer_ns_;
};

}  // namespace

std::unique_ptr<SharedAreas> MakePosixSharedAreas(std::shared_ptr<Scheduler> scheduler,
                                                  uint64_t answer_ns) {
  return std::make_unique<PosixSharedAreas>(std::move(scheduler), answer_ns);
}

}  // namespace cairn::io
