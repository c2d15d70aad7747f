// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/sweep.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/core/check.h"
#include "base/io/world.h"
#include "tools/bench/bench.h"
#include "tools/bench/fixture.h"

namespace cairn::bench {
namespace {

constexpr char kPath[] = "/store";
constexpr uint64_t kTokenBytes = 64;  // KV bytes per token.
constexpr int kTries = 3;             // Runs per size; the smallest cost of each step counts.
// Steps that cost less in all are as good as free: what is measured is then something else.
constexpr double kLeastWork = 20'000;

// The slope of the line that fits the logarithms best, over the last two powers of ten: below them
// what does not grow would show.
double Slope(const std::vector<double>& sizes, const std::vector<double>& costs) {
  const size_t first = sizes.size() - std::min<size_t>(sizes.size(), 3);
  CAIRN_CHECK(sizes.size() > 1);
  double x_mean = 0, y_mean = 0;
  const auto count = static_cast<double>(sizes.size() - first);
  for (size_t i = first; i < sizes.size(); ++i) {
    x_mean += std::log10(sizes[i]) / count;
    y_mean += std::log10(std::max(costs[i], 1.0)) / count;
  }
  double xy = 0, xx = 0;
  for (size_t i = first; i < sizes.size(); ++i) {
    const double x = std::log10(sizes[i]) - x_mean;
    xy += x * (std::log10(std::max(costs[i], 1.0)) - y_mean);
    xx += x * x;
  }
  return xy / xx;
}

Result<SweepCosts> RunOnce(const SweepCase& sweep, uint64_t size, const WorkCounter& counter) {
  CAIRN_ASSIGN_OR_RETURN(auto bed, SweepBed::Create(counter, size, size * sweep.restore_tokens));
  const uint64_t before = counter.Read();
  CAIRN_RETURN_IF_ERROR(bed->Open());
  CAIRN_RETURN_IF_ERROR(sweep.run(*bed));
  CAIRN_RETURN_IF_ERROR(bed->store().Close());
  bed->Record("all_work", static_cast<double>(counter.Read() - before));
  return bed->costs();
}

Status RunSweep(const SweepCase& sweep, uint64_t largest, const WorkCounter& counter,
                Report* report) {
  std::vector<double> sizes;
  std::vector<std::pair<std::string, std::vector<double>>> steps;  // Costs by size.
  for (uint64_t size = sweep.first_size; size <= std::min(largest, sweep.largest_size);
       size *= 10) {
    sizes.push_back(static_cast<double>(size));
    for (int i = 0; i < kTries; ++i) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      auto costs = RunOnce(sweep, size, counter);
      if (!costs.ok()) {
        return costs.status().WithContext("sweep " + std::string(sweep.name) + ", size " +
                                          std::to_string(size));
      }
      if (steps.empty()) {
        for (const auto& [name, cost] : *costs) steps.emplace_back(name, std::vector<double>());
      }
      CAIRN_CHECK(costs->size() == steps.size());
      for (size_t step = 0; step < steps.size(); ++step) {
        std::vector<double>& of_step = steps[step].second;
        if (i == 0) of_step.push_back((*costs)[step].second);
        of_step.back() = std::min(of_step.back(), (*costs)[step].second);
      }
    }
  }
  nlohmann::json costs_of_steps = nlohmann::json::object();
  for (const auto& [name, costs] : steps) {
    std::string text;
    for (size_t i = 0; i < sizes.size(); ++i) {
      char buffer[64];
      std::snprintf(buffer, sizeof(buffer), "%s%.0f: %.3g", i == 0 ? "" : ", ", sizes[i], costs[i]);
      text += buffer;
      costs_of_steps[name][std::to_string(static_cast<uint64_t>(sizes[i]))] = costs[i];
    }
    const bool is_work = name.ends_with("_work");
    const double slope = is_work && costs.back() < kLeastWork ? 0 : Slope(sizes, costs);
    report->Value(std::string(sweep.name) + "_" + name + "_slope", slope, text);
  }
  report->Machine(std::string(sweep.name) + "_costs", costs_of_steps);
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<SweepBed>> SweepBed::Create(const WorkCounter& counter, uint64_t size,
                                                   uint64_t kv_tokens) {
  ModelSpec spec;
  spec.identity.name = "tokens";
  if (kv_tokens > 0) {
    CAIRN_ASSIGN_OR_RETURN(spec, GeneratedModel(kTokenBytes));
  }
  std::unique_ptr<SweepBed> bed(new SweepBed(counter, size, std::move(spec)));
  if (kv_tokens > 0) {
    CAIRN_ASSIGN_OR_RETURN(bed->kv_, FlatKv::Create(bed->spec_, kv_tokens));
  }
  return bed;
}

SweepBed::SweepBed(const WorkCounter& counter, uint64_t size, ModelSpec spec)
    : counter_(counter), size_(size), spec_(std::move(spec)) {
  options_.create_if_missing = true;
  options_.world = std::make_shared<io::World>(io::MakeMemoryWorld());
  options_.segment_bytes = 4 << 20;  // Little memory, and batches of kMaxBatchOps fit.
  options_.spare_segments_min = 1;
  options_.spare_segments_max = 2;
  options_.hot_tail_bytes = 16 << 20;
  options_.executor_threads = 1;
}

Status SweepBed::Open() {
  CAIRN_RETURN_IF_ERROR(store_.Close());
  CAIRN_ASSIGN_OR_RETURN(store_, Store::Open(kPath, options_));
  CAIRN_ASSIGN_OR_RETURN(model_, store_.RegisterModel(spec_));
  return Status::Ok();
}

Result<Store> SweepBed::OpenReader() const {
  Options options = options_;
  options.create_if_missing = false;
  options.read_only = true;
  return Store::Open(kPath, options);
}

Delta SweepBed::DeltaOf(uint64_t begin, uint64_t end) {
  for (uint64_t position = begin; position < end; ++position) {
    if (ids_.size() <= position - begin) ids_.resize(position - begin + 1);
    ids_[position - begin] = TokenAt(position);
  }
  return TokenDelta(std::span(ids_).first(end - begin),
                    kv_ == nullptr ? nullptr : &kv_->At(begin, end - begin));
}

Status SweepBed::Append(Branch& branch, uint64_t begin, uint64_t end) {
  return branch.AppendSync(DeltaOf(begin, end), AppendAt(Durability::kMemory)).status();
}

Status SweepBed::Restore(const Branch& branch, uint64_t length) {
  std::vector<TokenId> ids(length);
  RestoreRequest request;
  request.end = length;
  request.tokens = ids;
  if (kv_ != nullptr) request.into = &kv_->At(0, length);
  CAIRN_ASSIGN_OR_RETURN(const RestoreResult result, branch.Restore(request));
  if (result.end != length || ids.back() != TokenAt(length - 1)) {
    return Status(StatusCode::kCorruption, "a restore gave something else");
  }
  return Status::Ok();
}

Status SweepBed::CloseAndNoteBytes() {
  // So that all of it is in tables of the index, whatever the size; else small ones would be in the
  // log alone, which opening takes into memory.
  CAIRN_RETURN_IF_ERROR(Work("compact", [&] { return store_.Compact(); }));
  const StoreMetrics metrics = store_.Metrics();
  Record("log_bytes", static_cast<double>(metrics.log_bytes_written));
  Record("memory_bytes", static_cast<double>(metrics.tree_memory_bytes));
  CAIRN_RETURN_IF_ERROR(store_.Close());
  io::FileSystem& files = *options_.world->files;
  const std::string directory = std::string(kPath) + "/tables";
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  uint64_t index_bytes = 0;
  for (const std::string& name : names) {
    if (!name.ends_with(".index")) continue;
    CAIRN_ASSIGN_OR_RETURN(const io::FileInfo info, files.Info(directory + "/" + name));
    index_bytes += info.bytes;
  }
  Record("index_bytes", static_cast<double>(index_bytes));
  return Status::Ok();
}

Status RunSweeps(const Config& config, const std::string& /*scratch*/, Report* report) {
  const WorkCounter counter;
  report->Machine("work", counter.unit());
  bool found = false;
  for (const SweepCase& sweep : SweepCases()) {
    if (config.sweep_name != "all" && config.sweep_name != sweep.name) continue;
    found = true;
    report->Machine(sweep.name, sweep.grows);
    CAIRN_RETURN_IF_ERROR(RunSweep(sweep, config.sweep_size_max, counter, report));
  }
  if (found) return Status::Ok();
  std::string names = "all";
  for (const SweepCase& sweep : SweepCases()) names += std::string(", ") + sweep.name;
  return Status(StatusCode::kInvalidArgument,
                "there is no sweep \"" + config.sweep_name + "\", but: " + names);
}

}  // namespace cairn::bench
