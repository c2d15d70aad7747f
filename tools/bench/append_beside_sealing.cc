// SPDX-License-Identifier: Apache-2.0
//
// append-beside-sealing: what durable appends notice of sealing that goes on beside them, at a
// share of the disk's write bandwidth.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kTokenBytes = 128 << 10;
constexpr uint64_t kBacklogTokens = 16;  // An append of what is to be sealed: 2 MiB.
// Sealing moves so much for a byte of KV: it reads it, writes it packed (0.67), and reads that.
constexpr double kMovedToKv = 2.34;

// Bytes a second of the fastest raw method, writing alone, 2 MiB at a time.
Result<double> RawWriteBytesPerSecond(const Config& config, RawFile& file, const KvPool& pool,
                                      Report* report) {
  Config raw_config = config;
  raw_config.seconds = std::min(config.seconds, 1.5);
  raw_config.rounds = std::min(config.rounds, 5u);
  auto raws = RawAppenders(file, pool, kBacklogTokens);
  std::vector<Arm*> arms;
  for (auto& raw : raws) arms.push_back(&raw->arm());
  CAIRN_RETURN_IF_ERROR(RunInterleaved(raw_config, "raw writes", arms));
  const Arm* best = arms.front();
  for (const Arm* arm : arms) {
    if (arm->p50_inner_us() < best->p50_inner_us()) best = arm;
  }
  report->Text("raw_method", best->name, "the fastest way to write 2 MiB durably");
  return static_cast<double>(best->bytes_per_op) / best->p50_inner_us() * 1e6;
}

// Sealing of everything, on a thread of its own; it pauses while the store is paused.
class Sealing {
 public:
  // Returns when it has begun, or ended.
  explicit Sealing(Store& store)
      : thread_([this, &store] {
          status_ = store.Compact();
          ended_ = true;
        }) {
    while (!ended_ && store.Metrics().background_read_bytes == 0) std::this_thread::yield();
  }
  ~Sealing() { thread_.join(); }
  Sealing(const Sealing&) = delete;
  Sealing& operator=(const Sealing&) = delete;

 private:
  Status status_;  // Cut by Close as a rule, which is how it ends.
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

// Bytes moved and packed while the arm with sealing ran.
struct Moved {
  StoreMetrics at_resume{};
  double since_us = 0;
  double seconds = 0, read_bytes = 0, written_bytes = 0, kv_bytes = 0;

  void Begin(const StoreMetrics& metrics) {
    at_resume = metrics;
    since_us = NowUs();
  }
  void End(const StoreMetrics& now) {
    if (since_us == 0) return;
    seconds += (NowUs() - since_us) * 1e-6;
    since_us = 0;
    read_bytes += static_cast<double>(now.background_read_bytes - at_resume.background_read_bytes);
    written_bytes +=
        static_cast<double>(now.background_written_bytes - at_resume.background_written_bytes);
    kv_bytes += static_cast<double>(now.sealed_bytes - at_resume.sealed_bytes);
  }
};

}  // namespace

Status RunAppendBesideSealing(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const KvPool pool, MakeSource(config, kTokenBytes));
  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw", config.source_bytes));
  CAIRN_ASSIGN_OR_RETURN(const double raw, RawWriteBytesPerSecond(config, *raw_file, pool, report));

  // The log's limit is out of reach, so that nothing but the rate says how fast sealing is.
  Options options;
  options.segment_bytes = config.segment_bytes;
  options.log_bytes_max = UINT64_MAX;
  options.snapshot_interval_tokens = options.max_delta_chain = 0;
  options.background_bytes_per_second = static_cast<uint64_t>(raw * config.share_of_raw);
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(scratch + "/store", options, report));
  CAIRN_RETURN_IF_ERROR(store.PauseBackground());
  CAIRN_ASSIGN_OR_RETURN(const ModelId id, store.RegisterModel(pool.model()));

  const double share = config.share_of_raw == 0 ? 1 : config.share_of_raw;
  const uint64_t backlog =
      config.session_bytes > 0
          ? config.session_bytes
          : static_cast<uint64_t>(raw * share / kMovedToKv * config.seconds * 0.6);
  CAIRN_ASSIGN_OR_RETURN(auto filler, Writer::Create(store, id, &pool, 0, kBacklogTokens));
  {
    Progress progress("what is to be sealed", backlog / kTokenBytes / kBacklogTokens);
    while (filler->length() * kTokenBytes < backlog) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      CAIRN_RETURN_IF_ERROR(filler->Prepare());
      CAIRN_RETURN_IF_ERROR(filler->AppendSync(Durability::kProcess));
      progress.Step();
    }
  }
  CAIRN_RETURN_IF_ERROR(store.Flush());

  CAIRN_ASSIGN_OR_RETURN(auto writer, Writer::Create(store, id, &pool, 0, 1));
  CAIRN_RETURN_IF_ERROR(store.ResumeBackground());  // While it is paused Compact refuses.
  Moved moved;
  bool paused = false;
  Arm idle{.name = "idle", .bytes_per_op = kTokenBytes};
  Arm beside{.name = "sealing", .bytes_per_op = kTokenBytes};
  for (Arm* arm : {&idle, &beside}) {
    arm->prepare = [&] {
      // Tokens come at a pace; what is measured is how long each takes, not how many fit.
      std::this_thread::sleep_for(std::chrono::microseconds(config.interval_us));
      return writer->Prepare();
    };
    arm->op = [&](double*) { return writer->AppendSync(Durability::kPower); };
  }
  idle.before_block = [&] {
    moved.End(store.Metrics());
    if (!paused) CAIRN_RETURN_IF_ERROR(store.PauseBackground());
    paused = true;
    return WaitForPool(store, 0);
  };
  beside.before_block = [&] {
    moved.End(store.Metrics());
    CAIRN_RETURN_IF_ERROR(WaitForPool(store, 0));
    if (paused) CAIRN_RETURN_IF_ERROR(store.ResumeBackground());
    paused = false;
    moved.Begin(store.Metrics());
    return Status::Ok();
  };
  StoreMetrics end;
  {
    const Sealing sealing(store);
    const Status status = RunInterleaved(config, "append beside sealing", {&idle, &beside});
    end = store.Metrics();
    moved.End(end);
    const Status closed = store.Close();
    CAIRN_RETURN_IF_ERROR(status);
    CAIRN_RETURN_IF_ERROR(closed);
  }

  const auto rate = [&](double bytes) { return bytes / moved.seconds; };
  const double all = rate(moved.read_bytes + moved.written_bytes);
  report->Value("idle_p50_us", idle.p50_us(), "append of one token of 128 KiB, to durable");
  report->Value("idle_p95_us", Quantile(idle.op_us, 0.95), "the same");
  report->Value("idle_p99_us", Quantile(idle.op_us, 0.99), "the same");
  report->Value("sealing_p50_us", beside.p50_us(), "with sealing beside it");
  report->Value("sealing_p95_us", Quantile(beside.op_us, 0.95), "the same");
  report->Value("sealing_p99_us", Quantile(beside.op_us, 0.99), "the same");
  report->Value("appends", static_cast<double>(idle.ops() + beside.ops()), "measured");
  report->Value("raw_write_mb_per_s", raw * 1e-6, "durable writes of 2 MiB, 10^6 bytes a second");
  report->Value("sealing_mb_per_s", all * 1e-6, "read and written while sealing");
  report->Value("sealing_share_of_raw", all / raw, "the same to raw writes");
  report->Value("sealing_written_share_of_raw", rate(moved.written_bytes) / raw, "writes alone");
  report->Value("sealed_kv_mb_per_s", rate(moved.kv_bytes) * 1e-6,
                "KV that whole tables were made of");
  report->Value("unsealed_share",
                1 - static_cast<double>(end.sealed_bytes) / static_cast<double>(end.raw_bytes),
                "left at the end; none means that sealing had nothing to do for a while");
  report->AddRatio("ratio_p50", RatioOfP50(beside, idle), "lower is better");
  report->AddRatio("ratio_p95", RatioOfQuantile(beside, idle, 0.95), "lower is better");
  report->AddRatio("ratio_p99", RatioOfQuantile(beside, idle, 0.99), "lower is better");
  return Status::Ok();
}

}  // namespace cairn::bench
