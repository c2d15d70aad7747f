// SPDX-License-Identifier: Apache-2.0
//
// trace: real requests, replayed. Their cost depends on what they share: how long the recurring
// prefixes are, how often one is left before its end, when a conversation is over.

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/machine.h"
#include "tools/bench/trace_reader.h"
#include "tools/bench/trace_replay.h"

namespace cairn::bench {
namespace {

constexpr double kMiB = 1 << 20;

Result<Durability> ParseDurability(const std::string& name) {
  if (name == "memory") return Durability::kMemory;
  if (name == "process") return Durability::kProcess;
  if (name == "power") return Durability::kPower;
  return Status(StatusCode::kInvalidArgument, "durability: memory, process or power, not " + name);
}

void ReportTimes(const std::string& name, const std::vector<double>& us, const std::string& of,
                 Report* report) {
  report->Value(name + "_p50_ms", Quantile(us, 0.5) * 1e-3, of);
  report->Value(name + "_p95_ms", Quantile(us, 0.95) * 1e-3, "the same, slow end");
  report->Value(name + "_p99_ms", Quantile(us, 0.99) * 1e-3, "the same, slowest end");
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Bytes of the store's files, without the log and its spare segments, divided by packed bytes that
// branches reach: the tree's need of the tables, position by position. Content in the log counts in
// neither. 0: nothing is packed yet.
Result<double> FilesToLive(const Store& store, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  uint64_t bytes = 0;
  for (fs::recursive_directory_iterator file(path, error), end; !error && file != end;
       file.increment(error)) {
    if (file->is_directory(error) && file->path().filename() == "log") {
      file.disable_recursion_pending();
    } else if (file->is_regular_file(error)) {
      const uint64_t size = file->file_size(error);
      bytes += error ? 0 : size;
    }
    error.clear();  // A table may be deleted meanwhile.
  }
  if (error) return Status(StatusCode::kIoError, path + ": " + error.message());
  return Share(static_cast<double>(bytes), static_cast<double>(store.Metrics().table_live_bytes));
}

// At the end of the load, when there was time to give space back, and after Compact.
Status ReportFilesToLive(Store& store, const std::string& path, double written_gib,
                         Report* report) {
  const auto value = [&](const std::string& name, const std::string& when) -> Status {
    CAIRN_ASSIGN_OR_RETURN(const double ratio, FilesToLive(store, path));
    report->Value(name, ratio, when);
    return Status::Ok();
  };
  CAIRN_RETURN_IF_ERROR(value("files_to_live",
                              "files without log and spares, to what branches reach of the packed "
                              "bytes, at the end of the load"));
  const double until_us = NowUs() + written_gib * 1e6;
  while (NowUs() < until_us) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CAIRN_RETURN_IF_ERROR(
      value("files_to_live_idle", "a second later for each GiB that was appended"));
  CAIRN_RETURN_IF_ERROR(store.Compact());
  return value("files_to_live_compact", "after Compact");
}

void ReportTotals(const ReplayTotals& totals, uint64_t token_bytes, Report* report) {
  const auto number = [&](const char* name, uint64_t value, const char* meaning) {
    report->Value(name, static_cast<double>(value), meaning);
  };
  number("sessions", totals.sessions, "begun");
  number("requests", totals.requests, "replayed");
  number("input_tokens", totals.input_tokens, "of their prompts");
  number("hit_tokens", totals.hit_tokens, "of these found in the store, and restored");
  report->Value(
      "hit_ratio",
      Share(static_cast<double>(totals.hit_tokens), static_cast<double>(totals.input_tokens)),
      "the quotient");
  number("tokens", totals.appended_tokens, "appended, outputs included");
  report->Value("appended_mib", static_cast<double>(totals.appended_tokens * token_bytes) / kMiB,
                "their KV");
  report->Value("restored_mib", static_cast<double>(totals.restored_bytes) / kMiB, "KV restored");
  number("forks", totals.forks, "requests that left a branch before its end");
  number("rewinds", totals.rewinds, "requests that went on where a prompt ended");
  number("drops", totals.drops, "branches of sessions that were over");
  number("waits_for_room", totals.waits_for_room, "appends that --max-bytes refused at first");
  number("verified_tokens", totals.verified_tokens, "positions compared with what was appended");
  ReportTimes("append", totals.append_us, "an append call", report);
  ReportTimes("find", totals.find_us, "where a request's prefix is", report);
  ReportTimes("restore", totals.restore_us, "a request's prefix", report);
  double restore_us = 0;
  for (const double us : totals.restore_us) restore_us += us;
  report->Value("restore_gb_per_s",
                Share(static_cast<double>(totals.restored_bytes), restore_us * 1e3), "all of them");
}

}  // namespace

Status RunTrace(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const Durability durability, ParseDurability(config.trace_durability));
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec model, GeneratedModel(config.kv_bytes_per_token));
  CAIRN_ASSIGN_OR_RETURN(auto reader, TraceReader::Open(config.trace_file, config.block_tokens));
  const uint64_t token_bytes = model.token_bytes();
  const std::string path = scratch + "/store";
  Options options;
  options.segment_bytes = config.segment_bytes;
  options.max_bytes = config.max_bytes;
  options.reuse_memory_bytes = config.reuse_memory_bytes;
  CAIRN_ASSIGN_OR_RETURN(auto replay, Replay::Create(model, durability, config.source_bytes));
  const uint64_t written_before = ProcessBytesWritten();
  const uint64_t resident_before = ResidentBytes();
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path, options, report));
  const double begin = NowUs();
  CAIRN_RETURN_IF_ERROR(replay->Run(store, *reader,
                                    {.requests = config.limit_requests,
                                     .kv_bytes = config.limit_bytes,
                                     .sessions_at_once = config.sessions_at_once}));
  const double seconds = (NowUs() - begin) * 1e-6;
  const uint64_t resident = ResidentBytes();
  const StoreMetrics metrics = store.Metrics();
  const uint64_t written = ProcessBytesWritten() - written_before;
  const ReplayTotals& totals = replay->totals();
  const auto bytes = [&](uint64_t tokens) {
    return static_cast<double>(tokens * (token_bytes + sizeof(TokenId)));
  };
  CAIRN_RETURN_IF_ERROR(
      ReportFilesToLive(store, path, bytes(totals.appended_tokens) / (1 << 30), report));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t live_tokens, replay->LiveTokens());
  CAIRN_RETURN_IF_ERROR(store.Close());

  DropFileCaches(scratch);
  const double open_begin = NowUs();
  CAIRN_ASSIGN_OR_RETURN(store, OpenStore(path, options, report));
  const double open_ms = (NowUs() - open_begin) * 1e-3;
  CAIRN_RETURN_IF_ERROR(replay->VerifyAll(store).WithContext("after reopening"));
  CAIRN_RETURN_IF_ERROR(store.Close());

  report->Machine("durability", config.trace_durability);
  report->Machine("kv_bytes_per_token", token_bytes);
  report->Machine("sessions_at_once", config.sessions_at_once);
  report->Machine("hot_tail_bytes", options.hot_tail_bytes);
  ReportTotals(totals, token_bytes, report);
  report->Value("branches", static_cast<double>(replay->branches()), "in the end");
  report->Value("live_tokens", static_cast<double>(live_tokens),
                "on their paths, shared ones once");
  report->Value("write_amplification",
                Share(static_cast<double>(written), bytes(totals.appended_tokens)),
                "bytes given to the device until the load ended, pre-writing included, to KV and "
                "ids appended");
  report->Value(
      "log_write_amplification",
      Share(static_cast<double>(metrics.log_bytes_written), bytes(totals.appended_tokens)),
      "bytes of the log alone");
  report->Value("space_amplification",
                Share(static_cast<double>(metrics.physical_bytes), bytes(live_tokens)),
                "blocks of all files, spares included, to KV and ids of live_tokens");
  report->Value("open_ms", open_ms, "opening it again, nothing cached");
  report->Value("rss_mib",
                (static_cast<double>(resident) - static_cast<double>(resident_before)) / kMiB,
                "resident memory the replay added: the store's, and a few bytes an id");
  report->Value("seconds", seconds, "the whole replay, generating and comparing KV included");
  return Status::Ok();
}

}  // namespace cairn::bench
