// SPDX-License-Identifier: Apache-2.0
//
// The socket of an area: how the creator listens and answers, and how another process asks. One
// message each way:
//
//   question  "CRNAREA1", nonce (16 bytes)
//   answer    "CRNAREA1", verdict (32 bits, native), zeros (32 bits), and with kMapped a descriptor
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/io/child_closes.h"
#include "base/io/own_fd.h"
#include "base/io/shared_area.h"
#include "base/io/world.h"

namespace cairn::io {

// A descriptor that children of fork() do not keep. Its destructor closes nothing in a child.
class OwnedHere {
 public:
  explicit OwnedHere(UniqueFd fd);
  ~OwnedHere();
  OwnedHere(const OwnedHere&) = delete;
  OwnedHere& operator=(const OwnedHere&) = delete;
  int get() const { return fd_.get(); }
  bool IsOurs() const { return fd_.IsOurs(); }

 private:
  const pid_t process_;
  OwnFd fd_;
};

// Listens from Start until it is destroyed, which takes the name of the socket away.
class AreaServer {
 public:
  // Fills in address->socket; its nonce is set. `memory` outlives the server.
  static Result<std::unique_ptr<AreaServer>> Start(const std::string& directory,
                                                   const OwnedHere* memory, AreaAddress* address,
                                                   std::shared_ptr<Scheduler> scheduler);
  ~AreaServer();
  AreaServer(const AreaServer&) = delete;
  AreaServer& operator=(const AreaServer&) = delete;
  AreaCounts counts() const { return {.mapped = mapped_.load(), .refused = refused_.load()}; }

 private:
  AreaServer(const OwnedHere* memory, const AreaAddress& address, UniqueFd directory,
             UniqueFd listening, UniqueFd stop, std::shared_ptr<Scheduler> scheduler);
  void Serve();
  void Answer(const UniqueFd& peer);

  const OwnedHere& memory_;
  const AreaAddress address_;
  const std::string name_;  // In the directory.
  const std::shared_ptr<Scheduler> scheduler_;
  const uint64_t process_;
  const OwnedHere directory_, listening_, stop_;
  std::atomic<uint64_t> mapped_{0}, refused_{0};
  std::atomic<bool> stopping_{false};
  std::unique_ptr<Thread> thread_;
};

// The memory that the creator at this address gives; not looked at yet. As SharedAreas::Map.
Result<UniqueFd> AskForArea(const AreaAddress& address, Scheduler* scheduler, uint64_t answer_ns);

}  // namespace cairn::io
