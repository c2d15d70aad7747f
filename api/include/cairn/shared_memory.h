// SPDX-License-Identifier: Apache-2.0
//
// Memory that several processes of one host see: an area. The process that has the store creates
// one and sends its address, a text, to processes that have KV of the model; they map it, and copy
// rows to and from it (cairn/copy_kv.h). docs/processes.md has the whole arrangement.
//
//   // The process with the store:
//   CAIRN_ASSIGN_OR_RETURN(SharedMemory area, SharedMemory::Create("/data/store", 256 << 20));
//   Send(worker, area.address());
//   // The worker:
//   CAIRN_ASSIGN_OR_RETURN(SharedMemory area, SharedMemory::Map(address));
//
// An area has a fixed size. It is gone with the last process that has it, however that ends: it is
// no file, and nothing of it survives a kill -9 of all of them, nor a power loss. A process that
// has mapped it keeps it when its creator ends.
//
// Only processes of the creator's user get it, and only those that know the address: treat that as
// a password. An address leads through a Unix socket of mode 0600, "area-<16 hex digits>", in the
// directory that Create was given; the kernel says who asks, and no message of the program carries
// memory. All processes that have an area may write anywhere in it, and nothing in it orders their
// writes: a process that has copied says so in a message of its own.
//
// The bytes are the caller's: the library counts them in no budget (Options::max_memory_bytes), and
// puts nothing there unasked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cairn/status.h"

namespace cairn::io {
class SharedArea;
}

namespace [[gnu::visibility("default")]] cairn {

// A handle, which may be copied; the mapping goes with the last copy, and of the creator the socket
// as well. All methods are thread-safe. In a child of fork() a handle is empty: bytes() has none.
class SharedMemory {
 public:
  SharedMemory() = default;  // Empty.

  // An area of `bytes`, rounded up to whole pages of the machine, all zeros. `directory`: where
  // processes that map it find it, usually the store's; it exists. A relative one is looked up
  // once. Sockets that dead processes of this user left there are removed.
  //
  // Blocking: all of its memory is taken at once, which takes a third of a second for a GiB, so
  // that no later write to it can fail. Starts a thread, which sleeps until a process maps the
  // area. Errors:
  //   kInvalidArgument: `bytes` is 0 or above 2^46, or the directory is no path.
  //   kNotFound: there is no such directory.
  //   kOutOfMemory: the machine has no room for it.
  //   kLocked: another process has been creating one in this directory for two seconds.
  //   kIoError: the system refuses; names the call.
  static Result<SharedMemory> Create(const std::string& directory, uint64_t bytes);

  // The area with this address. Blocking: asks its creator, for ten seconds at most. Errors:
  //   kInvalidArgument: `address` is none; names the part.
  //   kNotFound: its creator has ended, or is on another host.
  //   kConflict: another area answers there, so the address is an old one.
  //   kDeadlineExceeded: its creator does not answer: it is stopped, say.
  //   kOutOfMemory, kIoError: the area is of another user; the system refuses.
  static Result<SharedMemory> Map(const std::string& address);

  // All of it, page-aligned, where this process sees it; other processes see the same bytes at
  // other addresses. Lives as long as the last copy of this handle.
  std::span<std::byte> bytes() const;
  // For Map, in other processes of this host, as long as its creator has it. Has no spaces or
  // control characters but those of the path.
  const std::string& address() const;
  bool valid() const;       // Not empty.
  bool is_creator() const;  // Create made it.
  // By the creator: how many times the area was mapped, and refused to somebody who asked. Else 0.
  uint64_t mapped() const;
  uint64_t refused() const;

  // For tests inside the library.
  explicit SharedMemory(std::shared_ptr<io::SharedArea> area);

 private:
  std::shared_ptr<io::SharedArea> area_;
};

}  // namespace cairn
