// SPDX-License-Identifier: Apache-2.0
//
// The machine that the figures belong to, and the few favours asked of its kernel.
#pragma once

#include <string>

#include "cairn/status.h"

namespace cairn::bench {

struct MachineInfo {
  std::string cpu, kernel;
  unsigned cores = 0;
  std::string file_system;  // "ext4 (rw,relatime)"
  std::string device;       // "vda (write back, fua 0, mq-deadline)"; "unknown" when not found.
};
MachineInfo DescribeMachine(const std::string& directory);

double ProcessCpuSeconds();  // All threads, user and system, by getrusage.
double ThreadCpuSeconds();   // The calling thread.
uint64_t ResidentBytes();    // Memory of the process.
// Bytes that the process caused to be sent to storage; 0 where the kernel does not count them.
uint64_t ProcessBytesWritten();

uint64_t ProcessMinorFaults();    // All threads, by getrusage.
// Adds up the blocks that all files below `directory` hold.
uint64_t AllocatedBytes(const std::string& directory);

// Asks the kernel to forget cached pages of all files below `directory`.
void DropFileCaches(const std::string& directory);

// An empty directory `<parent>/<name>-<pid>`; the destructor removes it with all it holds, and the
// parent too when this made it and nothing else is in there.
class ScratchDirectory {
 public:
  static Result<ScratchDirectory> Create(const std::string& parent, const std::string& name);
  ScratchDirectory(ScratchDirectory&& other) noexcept;
  ~ScratchDirectory();
  const std::string& path() const { return path_; }

 private:
  ScratchDirectory() = default;
  std::string path_, made_parent_;
};

}  // namespace cairn::bench
