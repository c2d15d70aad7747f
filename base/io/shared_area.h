// SPDX-License-Identifier: Apache-2.0
//
// Memory that several processes see: an area. One process creates it, others map it by its address,
// a text that they were sent. It is gone with its last process, however that ends.
//
// SharedAreas is the part of a machine that has them, beside its World: the real one
// (posix_shared_areas.h), and the simulated one (sim/shared_areas.h), whose processes are objects.
//
// How an address leads to memory, on the real machine: the creator listens on a Unix socket of mode
// 0600 in a directory. Who connects must have the creator's user id, as the kernel says
// (SO_PEERCRED, asked by both sides), and the nonce of the address; the answer is the descriptor of
// the memory (SCM_RIGHTS). The memory is sealed against shrinking and growing, so that no process
// can make another one fault.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cairn/status.h"

namespace cairn::io {

inline constexpr uint64_t kAreaBytesMax = uint64_t{1} << 46;

// Whether a file in a directory is the socket of an area: "area-" and 16 hex digits.
bool IsAreaName(std::string_view name);

// What an address says.
struct AreaAddress {
  std::string host{};  // The running kernel's id, 32 hex digits; empty: not known.
  std::array<uint8_t, 16> nonce{};
  uint64_t bytes = 0;
  std::string socket{};  // An absolute path.

  std::string Text() const;
  // kInvalidArgument naming the part that is wrong.
  static Result<AreaAddress> Parse(std::string_view text);
  // In constant time.
  bool HasNonce(std::span<const uint8_t> other) const;
};

// How often an area was asked for.
struct AreaCounts {
  uint64_t mapped = 0;   // Answers that had the memory.
  uint64_t refused = 0;  // Askers of another user, with another nonce, or that said nothing.
};

// One process's mapping. Thread-safe.
class SharedArea {
 public:
  virtual ~SharedArea() = default;
  // All of it, whole pages, zeros at first. Empty in a child of fork(), which has no part of it.
  virtual std::span<std::byte> bytes() const = 0;
  virtual const std::string& address() const = 0;
  virtual bool is_creator() const = 0;
  virtual AreaCounts counts() const = 0;  // Zeros unless it is the creator.
};

class SharedAreas {
 public:
  virtual ~SharedAreas() = default;

  // An area of `bytes`, rounded up to whole pages, whose address leads through `directory`. All of
  // it has memory when this returns. Names that dead creators left in the directory are removed.
  //   kInvalidArgument: `bytes`, or the path. kNotFound: no such directory. kOutOfMemory.
  //   kLocked: another process has been making an area there for two seconds.
  //   kIoError: the system refuses.
  virtual Result<std::unique_ptr<SharedArea>> Create(const std::string& directory,
                                                     uint64_t bytes) = 0;

  // Waits for the creator, ten seconds at most.
  //   kInvalidArgument: no address. kNotFound: its creator is gone, or on another host.
  //   kConflict: the creator has another nonce. kDeadlineExceeded: it does not answer.
  //   kIoError: it is of another user, what it gave is no such area, or the system refuses.
  //   kOutOfMemory.
  virtual Result<std::unique_ptr<SharedArea>> Map(const std::string& address) = 0;
};

}  // namespace cairn::io
