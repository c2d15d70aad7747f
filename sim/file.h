// SPDX-License-Identifier: Apache-2.0
//
// Open files and queues of the simulated disk; used by base/io/sim_*.cc alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/io/request_file.h"
#include "sim/disk.h"

namespace cairn::io {

class SimFile final : public RequestFile {
 public:
  SimFile(SimDisk* disk, std::string path, std::shared_ptr<SimInode> inode,
          const OpenOptions& options)
      : disk_(disk),
        path_(std::move(path)),
        inode_(std::move(inode)),
        writable_(options.write),
        direct_(options.direct) {}

  const std::string& path() const override { return path_; }
  bool direct() const override { return direct_; }
  Result<uint64_t> Size() override;
  Status Truncate(uint64_t bytes) override;
  Status Allocate(uint64_t begin, uint64_t end) override;

  // The errno with which the system refuses the request before it tries, or 0.
  int Refusal(const Request& request) const;
  const std::shared_ptr<SimInode>& inode() const { return inode_; }

 private:
  void Run(Request& request) override;

  SimDisk* const disk_;
  const std::string path_;
  const std::shared_ptr<SimInode> inode_;
  const bool writable_;
  const bool direct_;
};

class SimQueue final : public Queue {
 public:
  SimQueue(SimDisk* disk, size_t depth);
  ~SimQueue() override;
  void Submit(Request* request) override;
  Request* Reap() override;
  size_t in_flight() const override { return pending_.size(); }

 private:
  SimDisk* const disk_;
  const size_t depth_;
  std::vector<SimDisk::Pending> pending_;
};

}  // namespace cairn::io
