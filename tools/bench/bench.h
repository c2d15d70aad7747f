// SPDX-License-Identifier: Apache-2.0
//
// Shared by all benchmarks: arms that are timed in alternating blocks, quantiles, and the report.
//
// A benchmark compares its arms within one run only. Arm A runs a block of operations, then B, then
// C, then A again, the order turning by one each round, so that a device or a neighbour that drifts
// meets all arms alike. Figures of different runs are not comparable; ratios within a run are.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cairn/status.h"

namespace cairn::bench {

inline double NowUs() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The value below which `quantile` of the samples lie, interpolated between neighbours; 0 without
// samples.
double Quantile(std::vector<double> samples, double quantile);
inline double Median(std::vector<double> samples) { return Quantile(std::move(samples), 0.5); }

// Everything that the command line can set. A benchmark reads the knobs it offers.
struct Config {
  std::string dir = "cairn-bench.tmp";
  bool json = false;
  double seconds = 6;    // Measuring time, all arms together.
  uint32_t rounds = 24;  // Blocks of each arm.
  uint32_t pool_segments = 16;
  uint64_t segment_bytes = 64ull << 20;
  uint64_t source_bytes = 256ull << 20;  // KV memory that appends are gathered from.
  std::string layout = "nhd";
  uint64_t kv_bytes = 128ull << 10;   // append-token: of one token.
  uint64_t sync_delay_us = 0;         // append-group.
  double share_of_raw = 0.5;          // append-beside-sealing.
  uint64_t interval_us = 1000;        // append-beside-sealing, append-at-cap.
  uint64_t cap_bytes = 1ull << 30;    // append-at-cap.
  std::string durability = "memory";  // submit.
  bool sealed = false;                // restore-cold.
  uint64_t session_bytes = 0;         // Restores; 0: the benchmark's own size.
  uint64_t memory_bytes = 0;          // restore-cold: max_memory_bytes; 0: the default.
  uint64_t tokens = 8192;             // fork.
  uint64_t steps = 100'000;           // rewind.
  uint64_t branches = 1'000'000;      // open-many, drop.
  uint64_t branch_kv_bytes = 0;       // open-many: of a token.
  uint64_t object_bytes = 64 << 10;   // objects.
  std::string kv_file, kv_shape;      // codec; empty: KV of the own model.
  uint32_t kv_tokens = 4096;          // codec: of the own model's text.
  // find; `branches` as well. The last one is trace's, too.
  uint64_t find_tokens = 100'000'000;
  uint64_t prompt_tokens = 100'000;
  uint64_t reuse_memory_bytes = 16ull << 20;
  // trace; limits of 0: none.
  std::string trace_file{};
  std::string trace_durability = "power";
  uint64_t kv_bytes_per_token = 2048;
  uint32_t block_tokens = 512;  // For .jsonl files.
  uint32_t sessions_at_once = 8;
  uint64_t limit_requests = 0, limit_bytes = 4ull << 30;
  uint64_t max_bytes = UINT64_MAX;
  // sweep.
  std::string sweep_name = "all";
  uint64_t sweep_size_max = 10'000;
  // load.
  std::string load_name = "burst";
  uint64_t load_bytes = 0;   // KV bytes per run; 0: the case's own.
  uint32_t load_rounds = 0;  // Runs of each arm; 0: the case's own.
  // load ingest.
  std::vector<uint64_t> ingest_sizes = {128 << 10, 512 << 10, 2 << 20,
                                        8 << 20,   32 << 20,  128 << 20};
  std::vector<uint32_t> ingest_threads = {1, 8};
  std::vector<std::string> ingest_kv = {"model", "random"};
  std::vector<std::string> ingest_arms = {"raw", "cairn", "lmdb", "files", "no-disk"};
  double ingest_seconds = 0;  // The longest that a run appends; 0: its own.
  bool quick = false;
  // peers.
  uint64_t peer_bytes = 256ull << 20;  // Other sizes follow from it.
  double peer_seconds = 3;             // Time per workload, all arms together.
  uint32_t peer_rounds = 6;
  std::string gpu_device = "cuda:0";  // gpu.
};

// One side of a comparison. `op` is timed; the others are not, and the CPU time of the calling
// thread in `prepare` is subtracted from the arm's.
struct Arm {
  std::string name{};
  uint64_t units_per_op = 1;  // Commits, where one op makes several.
  uint64_t bytes_per_op = 0;  // Logical bytes.
  uint64_t max_ops_per_block = UINT64_MAX;
  std::function<Status()> before_block{};
  std::function<Status()> prepare{};
  // Time spent in an inner step may be added to *inner_us (raw appends: the write alone).
  std::function<Status(double* inner_us)> op{};

  // Measured.
  struct Block {
    double p50_us = 0, p50_inner_us = 0;
    double total_us = 0;  // Sum of the ops.
    uint64_t ops = 0;
  };
  std::vector<Block> blocks{};
  std::vector<double> op_us{}, inner_us{};
  double cpu_s = 0;     // The whole process while the arm's blocks ran.
  uint64_t faults = 0;  // Minor page faults, likewise.

  double p50_us() const { return Median(op_us); }
  double p50_inner_us() const { return Median(inner_us); }
  uint64_t ops() const { return op_us.size(); }
  // Medians over blocks.
  double units_per_s() const;
  double gb_per_s() const;  // 10^9 bytes.
  double cpu_s_per_gb() const;
  double faults_per_gb() const;
};

// Runs `config.rounds` blocks of every arm, `config.seconds` in all. kCancelled after Ctrl-C.
Status RunInterleaved(const Config& config, const std::string& title, std::vector<Arm*> arms);

// A quotient with its smallest and largest value over the rounds.
struct Ratio {
  double value = 0, min = 0, max = 0;
};
Ratio RatioOfP50(const Arm& numerator, const Arm& denominator);
// The same for another quantile of all operations.
Ratio RatioOfQuantile(const Arm& numerator, const Arm& denominator, double quantile);
Ratio RatioOfP50ToInner(const Arm& numerator, const Arm& denominator);  // p50 to inner p50.
Ratio RatioOfUnits(const Arm& numerator, const Arm& denominator);  // Compares units per second.
Ratio RatioOfBytes(const Arm& numerator, const Arm& denominator);  // Compares bytes per second.

// The results of a benchmark: text for people or one JSON object. Names are stable.
class Report {
 public:
  void Value(const std::string& name, double value, const std::string& meaning);
  void Text(const std::string& name, const std::string& value, const std::string& meaning);
  // Without a meaning it is for the JSON alone, because people get it as part of a row.
  void Value(const std::string& name, double value) { values_[name] = value; }
  void AddRatio(const std::string& name, const Ratio& ratio);
  // A line of a table for people, printed before all values.
  void Row(const std::string& line) { rows_.push_back(line); }
  // Also adds the values `<name>_min` and `<name>_max`.
  void AddRatio(const std::string& name, const Ratio& ratio, const std::string& meaning);
  void Machine(const std::string& name, const nlohmann::json& value) { machine_[name] = value; }
  nlohmann::json ToJson(const std::string& bench) const;
  void Print(const std::string& bench) const;

 private:
  struct Line {
    std::string text, meaning;
  };
  nlohmann::json machine_ = nlohmann::json::object();
  nlohmann::json values_ = nlohmann::json::object();
  nlohmann::json ratios_ = nlohmann::json::object();
  std::vector<std::string> rows_;
  std::vector<Line> value_lines_, ratio_lines_;
};

// A bar on standard error when that is a terminal; silent otherwise.
class Progress {
 public:
  Progress(std::string title, uint64_t steps);
  ~Progress();
  void Step();

 private:
  std::string title_;
  uint64_t steps_, done_ = 0;
  bool terminal_;
};

// Set by SIGINT and SIGTERM, so that a benchmark ends early and removes its scratch data.
bool Interrupted();
void CatchInterrupts();

// The benchmarks. `scratch` is an empty directory of the caller's, removed afterwards.
using Run = Status (*)(const Config& config, const std::string& scratch, Report* report);
Status RunAppendDurable(const Config&, const std::string&, Report*);
Status RunAppendLarge(const Config& config, const std::string& scratch, Report* report);
Status RunAppendToken(const Config&, const std::string&, Report*);
Status RunAppendBesideSealing(const Config&, const std::string&, Report*);
Status RunAppendAtCap(const Config& config, const std::string& scratch, Report* report);
Status RunAppendGroup(const Config&, const std::string&, Report*);
Status RunSubmit(const Config&, const std::string&, Report*);
Status RunRestoreCold(const Config&, const std::string&, Report*);
Status RunRestoreWarm(const Config&, const std::string&, Report*);
Status RunRestoreSet(const Config&, const std::string&, Report*);
Status RunRestoreSmall(const Config&, const std::string&, Report*);
Status RunFork(const Config&, const std::string&, Report*);
Status RunDrop(const Config&, const std::string&, Report*);
Status RunRewind(const Config&, const std::string&, Report*);
Status RunOpenMany(const Config&, const std::string&, Report*);
Status RunFind(const Config&, const std::string&, Report*);
Status RunBlend(const Config& config, const std::string& scratch, Report* report);
Status RunCodec(const Config&, const std::string&, Report*);
Status RunTrace(const Config&, const std::string&, Report*);
Status RunSweeps(const Config&, const std::string&, Report*);
Status RunLoad(const Config&, const std::string&, Report*);
Status RunIngest(const Config& config, const std::string& scratch, Report* report);  // By RunLoad.
Status RunPeers(const Config&, const std::string&, Report*);
Status RunObjects(const Config&, const std::string&, Report*);
Status RunGpu(const Config&, const std::string&, Report*);
Status RunSparse(const Config&, const std::string&, Report*);
Status RunShadowStep(const Config&, const std::string&, Report*);

}  // namespace cairn::bench
