// SPDX-License-Identifier: Apache-2.0
//
// stat: what a store holds, how it lies on the disk, and whether that is healthy.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "base/core/check.h"
#include "engine/follow/hint.h"
#include "engine/manifest/manifest.h"
#include "engine/metrics/catalog.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/seen_objects.h"
#include "tools/cli/store_files.h"

namespace cairn::cli {

namespace {

// Below this many raw bytes the headers, the padding and the half-full segments of a log outweigh
// what it holds, and a ratio says nothing.
constexpr uint64_t kRatioBytesMin = 1 << 20;

struct StatArguments {
  std::string store;
  bool prometheus = false;
};

Json MetricsToJson(const StoreMetrics& metrics) {
  Json json = Json::object();
  for (const engine::Metric& metric : engine::Metrics()) {
    json[std::string(metric.field)] = metrics.*metric.value;
  }
  for (const engine::HistogramMetric& metric : engine::HistogramMetrics()) {
    const LatencyHistogram& histogram = metrics.*metric.value;
    json[std::string(metric.field)] = {{"count", histogram.count},
                                       {"p50_ns", histogram.QuantileNs(0.5)},
                                       {"p95_ns", histogram.QuantileNs(0.95)},
                                       {"p99_ns", histogram.QuantileNs(0.99)},
                                       {"max_ns", histogram.max_ns}};
  }
  return json;
}

Json HealthToJson(const Health& health) {
  Json alarms = Json::array();
  for (const Alarm& alarm : health.alarms) {
    alarms.push_back({{"name", alarm.name},
                      {"value", alarm.value},
                      {"limit", alarm.limit},
                      {"message", alarm.message}});
  }
  return {{"ok", health.ok}, {"alarms", alarms}};
}

std::string Decimal(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

// Files, cap and volume. A cap is an option of the process that writes; HINT has it.
Json SpaceToJson(const FileSums& all, const std::optional<engine::Hint>& hint,
                 const StoreMetrics& metrics) {
  Json space = {{"files", all.count},
                {"bytes", all.bytes},
                {"allocated_bytes", all.allocated},
                {"shared_allocated_bytes", all.shared},
                {"cap_known", hint.has_value() && hint->max_bytes != 0},
                {"cap_bytes", nullptr},
                {"below_cap_bytes", nullptr},
                {"disk_bytes", metrics.disk_bytes},
                {"disk_free_bytes", metrics.disk_free_bytes}};
  if (hint.has_value() && hint->max_bytes != 0 && hint->max_bytes != UINT64_MAX) {
    space["cap_bytes"] = hint->max_bytes;
    space["below_cap_bytes"] = hint->max_bytes - std::min(hint->max_bytes, all.allocated);
  }
  return space;
}

std::string CapText(const Json& space) {
  if (!space["cap_known"]) return "not known: it is an option of the process that writes";
  if (space["cap_bytes"].is_null()) return "none, of the process that wrote last";
  return BytesText(space["cap_bytes"]) + " on disk, of the process that wrote last; " +
         BytesText(space["below_cap_bytes"]) + " below it";
}

// What holds contents, and how that compares with them.
std::string StoredText(const Json& stat) {
  const uint64_t allocated = stat["files"]["segments"]["allocated_bytes"].get<uint64_t>() +
                             stat["files"]["snapshot_tables"]["allocated_bytes"].get<uint64_t>();
  const uint64_t raw = stat["metrics"]["raw_bytes"];
  const std::string text = BytesText(allocated) + " on disk, in segments and snapshot tables";
  if (raw < kRatioBytesMin) return text;
  return text + ", " + Decimal(static_cast<double>(allocated) / static_cast<double>(raw)) +
         " times the raw bytes";
}

void PrintStat(const Json& stat) {
  const auto line = [](const char* name, const std::string& value) {
    if (!value.empty()) std::printf("%-16s %s\n", name, Printable(value).c_str());
  };
  const auto number = [](const Json& value) { return std::to_string(value.get<uint64_t>()); };
  const Json& metrics = stat["metrics"];
  line("store", stat["store"]);
  line("store id", stat["store_id"]);
  line("created", TimeText(stat["created_at_ns"]));
  line("format", number(stat["format_version"]));
  line("branches", number(stat["branches"]));
  line("nodes", number(stat["nodes"]));
  line("models", number(stat["models"]));
  line("tokens", number(stat["tokens"]));
  line("objects", number(stat["objects"]));
  line("raw bytes", BytesText(metrics["raw_bytes"]) + " of contents, before packing");
  line("stored", StoredText(stat));
  line("written", BytesText(metrics["written_bytes_day"]) +
                      " in the last 24 hours, as of the last checkpoint");
  line("mean chain", Decimal(stat["mean_chain"]) + " deltas, " +
                         Plural(metrics["chain_lanes"], "lane") + " of KV");
  line("last sequence", number(stat["last_sequence"]));
  line("segment size", BytesText(stat["segment_bytes"]));
  for (const auto& [kind, files] : stat["files"].items()) {
    std::string words = kind;
    std::replace(words.begin(), words.end(), '_', ' ');
    std::string text = FilesText(
        {.count = files["count"], .bytes = files["bytes"], .allocated = files["allocated_bytes"]});
    if (kind == "snapshot_tables" && files["count"] != 0) {
      text += ", " + BytesText(metrics["table_live_bytes"]) + " live";
    }
    line(words.c_str(), text);
  }
  const Json& space = stat["space"];
  const uint64_t shared = space["shared_allocated_bytes"];
  line("total", FilesText({.count = space["files"],
                           .bytes = space["bytes"],
                           .allocated = space["allocated_bytes"]}) +
                    (shared == 0 ? "" : ", " + BytesText(shared) + " shared with a copy"));
  line("cap", CapText(space));
  line("free", BytesText(space["disk_free_bytes"]) + " of " + BytesText(space["disk_bytes"]) +
                   " on the volume");
  line("durable by", stat["sync_method"]);
  line("measured", stat["sync_probe"]);
  line("file system", stat["volume"]);
  line("I/O here", stat["io_backend"]);
  line("recovery", stat["recovery_note"]);
  if (stat["health"]["ok"]) line("health", "ok, as far as files tell");
  for (const Json& alarm : stat["health"]["alarms"]) {
    line("ALARM", alarm["name"].get<std::string>() + ": " + alarm["message"].get<std::string>());
  }
}

Result<int> RunStat(const StatArguments& arguments, bool json) {
  if (arguments.prometheus && json) {
    return Status(StatusCode::kInvalidArgument, "--prometheus excludes --json");
  }
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  if (arguments.prometheus) {
    std::printf("# Read from the files: gauges are the store's, counters and times begin here.\n%s",
                store.PrometheusText(arguments.store).c_str());
    return kExitOk;
  }
  CAIRN_ASSIGN_OR_RETURN(const io::World world, WorldOfStore(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const engine::Manifest manifest,
                         engine::ReadManifest(*world.files, arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const engine::StoreOptionsFile chosen,
                         engine::ReadOptionsFile(*world.files, arguments.store));
  const StoreMetrics metrics = store.Metrics();
  CAIRN_ASSIGN_OR_RETURN(const SeenObjects objects, SeeObjects(store));
  CAIRN_ASSIGN_OR_RETURN(const BranchCounts counts, CountBranches(store, metrics, objects));
  Json files = Json::object();
  FileSums all;
  LiveSegments live{.first = manifest.log_start_segment, .count = metrics.log_segments};
  for (const wal::RestingSegment& segment : manifest.resting) live.resting.insert(segment.number);
  for (const auto& [kind, sums] : SumFiles(arguments.store, live)) {
    files[kind] = sums.ToJson();
    all.Add(sums);
  }
  const auto hint = engine::ReadHint(*world.files, arguments.store, manifest.store);
  const Json stat = {{"store", arguments.store},
                     {"store_id", Hex(std::as_bytes(std::span(manifest.store.bytes)))},
                     {"created_at_ns", manifest.created_at_ns},
                     {"format_version", kFormatVersion},
                     {"branches", counts.branches},
                     {"nodes", counts.nodes},
                     {"models", metrics.models},
                     {"tokens", counts.tokens},
                     {"objects", objects.count},
                     {"last_sequence", metrics.last_sequence},
                     {"stored_ratio", metrics.stored_ratio()},
                     {"mean_chain", metrics.mean_chain()},
                     {"segment_bytes", manifest.segment_bytes},
                     {"files", files},
                     {"space", SpaceToJson(all, hint, metrics)},
                     {"sync_method", store.sync_method()},
                     {"sync_probe", chosen.probe},
                     {"volume", chosen.volume},
                     {"io_backend", store.io_name()},
                     {"recovery_note", store.recovery_note()},
                     {"health", HealthToJson(CheckHealth(metrics))},
                     {"metrics", MetricsToJson(metrics)}};
  if (json) {
    PrintJson(stat);
  } else {
    PrintStat(stat);
  }
  return kExitOk;
}

}  // namespace

void AddStatCommand(CLI::App& app, Session& session) {
  const auto stat = std::make_shared<StatArguments>();
  CLI::App* command = AddCommand(
      app, session, "stat", Access::kLooks,
      "Numbers about a store: contents, files, health\n\n"
      "Read from the files. Latencies, failures and queues are known to the process that\n"
      "serves from the store alone: there, Store::Health and Store::PrometheusText tell.\n"
      "\n"
      "\"on disk\" is the blocks that files have, as a cap and du count; \"long\" their lengths;\n"
      "\"live\" what is still needed. The log has blocks before it needs them, and keeps files to\n"
      "use again, so a small store takes more than it holds. The metrics of --json and\n"
      "--prometheus count an object as a branch, and each of its pages as a token.",
      "  cairn stat state\n"
      "  cairn stat state --json | jq .health\n"
      "  cairn stat state --prometheus > /var/lib/node_exporter/cairn.prom",
      stat, RunStat);
  AddStoreArgument(command, &stat->store);
  command->add_flag("--prometheus", stat->prometheus, "Print the metrics as Prometheus reads them");
}

}  // namespace cairn::cli
