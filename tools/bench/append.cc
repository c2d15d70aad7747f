// SPDX-License-Identifier: Apache-2.0
//
// append-durable, append-large and append-token: blocking appends at kPower beside the same bytes
// written raw.

#include <algorithm>

#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kTokenBytes = 128 << 10;
constexpr uint64_t kTokensPerAppend = 16;  // 2 MiB of KV.
constexpr uint64_t kTokensPerLarge = 512;  // 64 MiB.

// A store with one growing branch, and its arm.
struct DurableArm {
  Store store;
  std::unique_ptr<Writer> writer;
  Arm arm;
};

Result<std::unique_ptr<DurableArm>> OpenDurableArm(const std::string& path, const Options& options,
                                                   const KvPool& pool, uint64_t tokens,
                                                   Report* report) {
  auto ours = std::make_unique<DurableArm>();
  CAIRN_ASSIGN_OR_RETURN(ours->store, OpenStore(path, options, report));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model, ours->store.RegisterModel(pool.model()));
  CAIRN_ASSIGN_OR_RETURN(ours->writer, Writer::Create(ours->store, model, &pool, 0, tokens));
  Writer* writer = ours->writer.get();
  ours->arm.name = "cairn";
  ours->arm.bytes_per_op = tokens * pool.model().token_bytes();
  ours->arm.prepare = [writer] { return writer->Prepare(); };
  ours->arm.op = [writer](double*) { return writer->AppendSync(Durability::kPower); };
  return ours;
}

Options StoreOptions(const Config& config, uint32_t pool_segments) {
  Options options;
  options.segment_bytes = config.segment_bytes;
  options.log_bytes_max = UINT64_MAX;  // The log alone; `peers` and `trace` measure what follows.
  options.snapshot_interval_tokens = options.max_delta_chain = 0;
  options.spare_segments_max = std::max(options.spare_segments_min, pool_segments);
  return options;
}

// Leaves a store at `path` with a full pool. Opened again with the usual options it has these
// spares and makes no further ones before they are nearly used up: as in a store that has run for
// long, where the pool lives on recycled segments.
Status MakeFullPool(const std::string& path, Options options, Report* report) {
  options.spare_segments_min = options.spare_segments_max;
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path, options, report));
  CAIRN_RETURN_IF_ERROR(WaitForPool(store, options.spare_segments_max));
  return store.Close();
}

uint64_t PoolBytes(const Config& config) { return config.pool_segments * config.segment_bytes; }

void ReportAgainstRaw(const Arm& ours, const Arm& raw, Report* report) {
  report->Value("p50_us", ours.p50_us(), "append, called to durable");
  report->Value("p99_us", Quantile(ours.op_us, 0.99), "the same, slow end");
  report->Value("gb_per_s", ours.gb_per_s(), "logical bytes, 10^9 a second");
  report->Value("appends", static_cast<double>(ours.ops()), "measured");
  report->Value("raw_p50_us", raw.p50_us(), "gather and write the same bytes, no index");
  report->Value("raw_write_p50_us", raw.p50_inner_us(), "the write alone, without the gathering");
  report->Value("raw_gb_per_s", raw.gb_per_s(), "of gathering and writing");
  report->Value("cpu_s_per_gb", ours.cpu_s_per_gb(), "CPU of the process in our blocks");
  report->Value("raw_cpu_s_per_gb", raw.cpu_s_per_gb(), "in the raw blocks, gathering included");
  report->Value("cpu_s_per_gb_above_raw", ours.cpu_s_per_gb() - raw.cpu_s_per_gb(), "difference");
  report->AddRatio("p50_to_raw", RatioOfP50(ours, raw), "1 is the device's limit, lower is better");
  report->AddRatio("p50_to_raw_write", RatioOfP50ToInner(ours, raw),
                   "against the write alone, as if gathering were free");
}

// Interleaves one store, its pool full, with the raw methods, for no longer than the pool lasts.
Status MeasureWarm(const Config& config, const std::string& scratch, const KvPool& pool,
                   uint64_t tokens, RawFile& raw_file, Report* report) {
  const std::string path = scratch + "/full_pool";
  const auto warm_up = static_cast<uint32_t>(Options().hot_tail_bytes / config.segment_bytes + 2);
  const Options options = StoreOptions(config, config.pool_segments + warm_up);
  CAIRN_RETURN_IF_ERROR(MakeFullPool(path, options, report));
  CAIRN_ASSIGN_OR_RETURN(auto ours, OpenDurableArm(path, options, pool, tokens, report));
  CAIRN_RETURN_IF_ERROR(FillHotTail(ours->store, *ours->writer, options));

  // A record costs its bytes, its frame, and the padding of its group.
  const uint64_t per_append = ours->arm.bytes_per_op * 102 / 100 + 8192;
  const uint64_t kept = std::min<uint64_t>(config.pool_segments - 1, 3) * config.segment_bytes;
  const uint64_t appends = std::max<uint64_t>(1, (PoolBytes(config) - kept) / per_append);
  Config bounded = config;
  bounded.rounds = static_cast<uint32_t>(std::min<uint64_t>(config.rounds, appends));
  ours->arm.max_ops_per_block = appends / bounded.rounds;
  auto raws = RawAppenders(raw_file, pool, tokens);
  std::vector<Arm*> arms = {&ours->arm};
  for (auto& raw : raws) {
    raw->arm().max_ops_per_block = ours->arm.max_ops_per_block;
    raw->arm().before_block = [&] { return WaitForPool(ours->store, 0); };
    arms.push_back(&raw->arm());
  }
  CAIRN_RETURN_IF_ERROR(RunInterleaved(bounded, "full pool", arms));
  const StoreMetrics metrics = ours->store.Metrics();
  const Arm& best = BestRaw(raws, report);
  ReportAgainstRaw(ours->arm, best, report);
  report->AddRatio("throughput_to_raw", RatioOfBytes(ours->arm, best), "higher is better");
  for (const auto& raw : raws) {
    report->Value("raw_p50_us_" + raw->arm().name.substr(4), raw->arm().p50_us(), "this method");
  }
  report->Value("write_amplification",
                static_cast<double>(metrics.log_bytes_written) /
                    static_cast<double>(metrics.kv_bytes_appended),
                "bytes written to the log a byte of KV, pre-writing not counted");
  return ours->store.Close();
}

}  // namespace

Status RunAppendDurable(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const KvPool pool, MakeSource(config, kTokenBytes));
  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw", config.source_bytes));
  return MeasureWarm(config, scratch, pool, kTokensPerAppend, *raw_file, report);
}

// Appends of 64 MiB, and raw. Ours end with their pool, before a segment has to be made.
Status RunAppendLarge(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const KvPool pool, MakeSource(config, kTokenBytes));
  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw", config.source_bytes));
  return MeasureWarm(config, scratch, pool, std::min(kTokensPerLarge, pool.tokens() / 2), *raw_file,
                     report);
}

Status RunAppendToken(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const KvPool pool, MakeSource(config, config.kv_bytes));
  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw", config.source_bytes));
  return MeasureWarm(config, scratch, pool, 1, *raw_file, report);
}

}  // namespace cairn::bench
