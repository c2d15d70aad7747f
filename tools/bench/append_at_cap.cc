// SPDX-License-Identifier: Apache-2.0
//
// append-at-cap: durable appends to a full store, which evicts the least recently used content for
// each, beside a store that has room for all.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/core/check.h"
#include "tools/bench/fixture.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kTokenBytes = 128 << 10;
constexpr uint64_t kTurnTokens = 64;  // A conversation's length; then another one begins.
constexpr double kLongUs = 50'000;    // A user would call more a hitch.

// One conversation after the other.
class Conversations {
 public:
  Conversations(Store* store, ModelId model, const KvPool* pool)
      : store_(store), model_(model), pool_(pool) {}

  Status Prepare() {
    if (writer_ == nullptr || writer_->length() >= kTurnTokens) {
      CAIRN_ASSIGN_OR_RETURN(writer_, Writer::Create(*store_, model_, pool_, 0, 1));
    }
    return writer_->Prepare();
  }
  Status Append(Durability durability) { return writer_->AppendSync(durability); }

 private:
  Store* store_;
  ModelId model_;
  const KvPool* pool_;
  std::unique_ptr<Writer> writer_;
};

}  // namespace

Status RunAppendAtCap(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const KvPool pool, MakeSource(config, kTokenBytes));

  // Both seal and retire in the same way, as far as the cap leaves them to.
  Options options;
  options.segment_bytes = std::min(config.segment_bytes, config.cap_bytes / 32);
  options.log_bytes_max = config.cap_bytes / 4;
  CAIRN_ASSIGN_OR_RETURN(Store roomy, OpenStore(scratch + "/roomy", options, report));
  options.max_bytes = config.cap_bytes;
  options.evict = Evict::kKv;
  CAIRN_ASSIGN_OR_RETURN(Store full, OpenStore(scratch + "/full", options, report));
  CAIRN_ASSIGN_OR_RETURN(const ModelId roomy_id, roomy.RegisterModel(pool.model()));
  CAIRN_ASSIGN_OR_RETURN(const ModelId full_id, full.RegisterModel(pool.model()));
  Conversations beside(&roomy, roomy_id, &pool), at_cap(&full, full_id, &pool);
  {
    // Once over, and until something had to go.
    const uint64_t appends = 3 * config.cap_bytes / 2 / kTokenBytes;
    Progress progress("until it is full", appends);
    for (uint64_t i = 0; i < appends || full.Metrics().evicted_bytes == 0; ++i) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      for (Conversations* const one : {&beside, &at_cap}) {
        CAIRN_RETURN_IF_ERROR(one->Prepare());
        CAIRN_RETURN_IF_ERROR(one->Append(Durability::kProcess));
      }
      progress.Step();
    }
    CAIRN_RETURN_IF_ERROR(full.Flush());
    CAIRN_RETURN_IF_ERROR(roomy.Flush());
  }

  const StoreMetrics begin = full.Metrics();
  Arm idle{.name = "roomy", .bytes_per_op = kTokenBytes};
  Arm capped{.name = "full", .bytes_per_op = kTokenBytes};
  const auto pace = [&config] {
    std::this_thread::sleep_for(std::chrono::microseconds(config.interval_us));
  };
  idle.prepare = [&] {
    pace();
    return beside.Prepare();
  };
  idle.op = [&](double*) { return beside.Append(Durability::kPower); };
  capped.prepare = [&] {
    pace();
    return at_cap.Prepare();
  };
  capped.op = [&](double*) { return at_cap.Append(Durability::kPower); };
  // Background work of the other store is paused.
  Store* paused = nullptr;
  const auto alone = [&paused](Store* store, Store* other) {
    if (paused == store) CAIRN_RETURN_IF_ERROR(store->ResumeBackground());
    if (paused != other) CAIRN_RETURN_IF_ERROR(other->PauseBackground());
    paused = other;
    return WaitForPool(*store, 0);
  };
  idle.before_block = [&] { return alone(&roomy, &full); };
  capped.before_block = [&] { return alone(&full, &roomy); };
  CAIRN_RETURN_IF_ERROR(RunInterleaved(config, "append at the cap", {&idle, &capped}));
  const StoreMetrics end = full.Metrics();

  const auto longest = [](const Arm& arm) {
    return *std::max_element(arm.op_us.begin(), arm.op_us.end());
  };
  const auto hitches = [](const Arm& arm) {
    return static_cast<double>(
        std::count_if(arm.op_us.begin(), arm.op_us.end(), [](double us) { return us > kLongUs; }));
  };
  for (const Arm* const arm : {&idle, &capped}) {
    const std::string name = arm->name;
    report->Value(name + "_p50_us", arm->p50_us(), "append of one token of 128 KiB, to durable");
    report->Value(name + "_p95_us", Quantile(arm->op_us, 0.95), "the same");
    report->Value(name + "_p99_us", Quantile(arm->op_us, 0.99), "the same");
    report->Value(name + "_longest_us", longest(*arm), "the same");
    report->Value(name + "_hitches", hitches(*arm), "appends that took more than 50 ms");
    report->Value(name + "_appends", static_cast<double>(arm->ops()), "measured");
  }
  const auto appended = static_cast<double>(capped.ops() * kTokenBytes);
  report->Value("cap_mib", static_cast<double>(config.cap_bytes) / (1 << 20), "of the full store");
  report->Value("kept_to_cap",
                static_cast<double>(end.raw_bytes) / static_cast<double>(config.cap_bytes),
                "raw KV and ids that are there at the end; what is packed takes less");
  report->Value("evicted_to_appended",
                static_cast<double>(end.evicted_bytes - begin.evicted_bytes) / appended,
                "KV bytes that went, for one that came");
  report->Value("written_to_appended",
                static_cast<double>(end.background_written_bytes - begin.background_written_bytes +
                                    end.log_bytes_written - begin.log_bytes_written) /
                    appended,
                "log and tables, for a byte of KV that came");
  report->AddRatio("ratio_p50", RatioOfP50(capped, idle), "full to roomy, lower is better");
  report->AddRatio("ratio_p95", RatioOfQuantile(capped, idle, 0.95), "lower is better");
  report->AddRatio("ratio_p99", RatioOfQuantile(capped, idle, 0.99), "lower is better");
  report->AddRatio("rate", RatioOfBytes(capped, idle), "higher is better");
  CAIRN_RETURN_IF_ERROR((paused == &full ? full : roomy).ResumeBackground());
  CAIRN_RETURN_IF_ERROR(full.Close());
  return roomy.Close();
}

}  // namespace cairn::bench
