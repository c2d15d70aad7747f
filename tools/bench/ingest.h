// SPDX-License-Identifier: Apache-2.0
//
// The parts of `load ingest`: one run of a store or of a peer, and what is said of all runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/no_disk.h"
#include "tools/bench/ingest_kv.h"
#include "tools/bench/load.h"

namespace cairn::bench {

// The appends of a run.
struct IngestShape {
  uint64_t append_bytes = 0;
  uint32_t threads = 1;
  uint64_t bytes_max = 0;  // KV of a run, or two appends a thread if that is more...
  double seconds_max = 0;  // ...and how long it may append.

  uint64_t tokens() const { return append_bytes / kIngestTokenBytes; }
  std::string name() const;  // "2m_8t"
  Work NewWork() const;
};

// A store's runs: until all is acknowledged, and from there until nothing is left to do.
struct StoreLoad {
  Load acked, settled;
  double packed_ratio = 0;       // KV and ids to the tables that hold them.
  double machine_cpu_s = 0;      // Without a disk: what the file system cost until then,
  double machine_settled_s = 0;  // what it cost from there,
  uint64_t machine_bytes = 0;    // and the bytes that it took in all.

  bool has_settled() const { return settled.gb() > 0; }
  // A run until quiet, in GB/s: one of each after the other.
  std::vector<double> settled_rates() const;
  double settled_gb_per_s() const { return Median(settled_rates()); }
  double settled_cpu_s_per_gb() const { return acked.cpu_s_per_gb() + settled.cpu_s_per_gb(); }
  double faults_per_gb() const { return acked.all_faults_per_gb() + settled.all_faults_per_gb(); }
  double device_per_byte() const {
    return acked.device_bytes_per_byte() + settled.device_bytes_per_byte();
  }
  // KV bytes a second of processor time, without the file system's where that is known.
  double acked_gb_per_cpu_s() const {
    return acked.gb() / (acked.cpu_s_per_gb() * acked.gb() - machine_cpu_s);
  }
  double settled_gb_per_cpu_s() const {
    return acked.gb() / (settled_cpu_s_per_gb() * acked.gb() - machine_cpu_s - machine_settled_s);
  }
};

// Appends to a new store with the default options, each thread to a branch of its own, at kPower;
// then Compact. It is removed.
Status RunStore(const std::string& path, const KvPool& pool, const IngestShape& shape,
                StoreLoad* load, Report* report);

// The same on a machine without a disk. kAll: as above. kSmall: until acknowledged, with the
// background paused, since what it would read is gone.
Status RunStoreWithoutDisk(std::shared_ptr<io::NoDisk> machine, io::NoDiskKeeps keeps,
                           const KvPool& pool, const IngestShape& shape, StoreLoad* load);

// Appends to a new "lmdb" or "chunk_files". Does nothing if that is not built in.
Status RunIngestPeer(const std::string& name, const std::string& path, const KvPool& pool,
                     const IngestShape& shape, Load* load);

// The runs of one shape on the disk. Loads without a run are left out.
struct IngestCell {
  IngestShape shape;
  Load raw_used{}, raw_fresh{}, lmdb{}, files{};
  StoreLoad model{}, random{};
};
// The runs of one size without a disk: one thread and two.
struct NoDiskCell {
  std::string name;                // "2m_model"
  StoreLoad acked[2], settled[2];  // With kSmall, and with kAll.
};
void ReportCell(const IngestCell& cell, Report* report);
void ReportNoDisk(const NoDiskCell& cell, Report* report);

}  // namespace cairn::bench
