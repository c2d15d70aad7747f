// SPDX-License-Identifier: Apache-2.0
//
// sweep: does a cost grow no faster than the size? Each sweep makes one thing larger by powers of
// ten, in a new store in memory, and takes the total cost of each step at every size: work
// (work_counter.h) and bytes of log, index and memory. The slope of log(cost) over log(size) is 1
// where cost is proportional.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "cairn/store.h"
#include "tools/bench/generated_kv.h"
#include "tools/bench/work_counter.h"

namespace cairn::bench {

using SweepCosts = std::vector<std::pair<std::string, double>>;  // By step, in order.

// A store in memory for one size of one sweep, and its costs.
class SweepBed {
 public:
  // `kv_tokens`: the most that are appended or restored at once; 0: there is no KV.
  static Result<std::unique_ptr<SweepBed>> Create(const WorkCounter& counter, uint64_t size,
                                                  uint64_t kv_tokens);

  uint64_t size() const { return size_; }
  Store& store() { return store_; }
  ModelId model() const { return model_; }
  // Also after a Close.
  Status Open();
  Result<Store> OpenReader() const;
  // Positions [begin, end) of any branch, with their KV; valid until the next call.
  Delta DeltaOf(uint64_t begin, uint64_t end);
  Status Append(Branch& branch, uint64_t begin, uint64_t end);
  // Into memory of as many positions.
  Status Restore(const Branch& branch, uint64_t length);

  // Runs `step` and notes its work, divided by `repeated`.
  template <typename Step>
  Status Work(const std::string& name, const Step& step, uint64_t repeated = 1) {
    const uint64_t before = counter_.Read();
    CAIRN_RETURN_IF_ERROR(step());
    const auto work = static_cast<double>(counter_.Read() - before);
    Record(name + "_work", work / static_cast<double>(repeated));
    return Status::Ok();
  }
  void Record(const std::string& name, double cost) { costs_.emplace_back(name, cost); }
  // Compacts and closes the store; notes the bytes of the log since the opening, of the tree in
  // memory, and of the index.
  Status CloseAndNoteBytes();
  const SweepCosts& costs() const { return costs_; }

 private:
  SweepBed(const WorkCounter& counter, uint64_t size, ModelSpec spec);

  const WorkCounter& counter_;
  const uint64_t size_;
  const ModelSpec spec_;
  Options options_;
  ModelId model_{};
  std::unique_ptr<FlatKv> kv_;  // Null: tokens alone.
  std::vector<TokenId> ids_;
  SweepCosts costs_;
  Store store_;
};

struct SweepCase {
  const char* name;
  const char* grows;        // The quantity that it increases...
  uint64_t first_size;      // ...from here on, ten times a step, ...
  uint64_t largest_size;    // ...up to here, if not less is asked for.
  uint64_t restore_tokens;  // Memory to restore to, for each of the size; 0: there is no KV.
  Status (*run)(SweepBed& bed);
};
std::span<const SweepCase> SweepCases();

}  // namespace cairn::bench
