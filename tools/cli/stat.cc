// SPDX-License-Identifier: Apache-2.0
//
// stat: what a store holds, how it lies on the disk, and whether that is healthy.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>

#include "base/core/check.h"
#include "engine/manifest/manifest.h"
#include "engine/metrics/catalog.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "wal/format.h"

namespace cairn::cli {

namespace {

namespace fs = std::filesystem;

struct StatArguments {
  std::string store;
  bool prometheus = false;
};

struct FileSums {
  uint64_t count = 0, bytes = 0, allocated = 0;
};

// Segments of the log, by number. Others are ready to be the next, or left to be used again.
struct LiveSegments {
  uint64_t first = 0, count = 0;

  bool Has(const fs::path& path) const {
    const std::string name = path.filename().string();
    uint64_t number = 0;
    std::from_chars(name.data(), name.data() + name.size(), number, 16);
    return number >= first && number - first < count && name == wal::SegmentFileName(number);
  }
};

const char* KindOfFile(const fs::path& path, const LiveSegments& live) {
  const std::string extension = path.extension().string();
  if (extension == ".log") return live.Has(path) ? "segments" : "spares";
  if (extension == ".snapshot") return "snapshot_tables";
  return extension == ".index" ? "index_tables" : "other";
}

// By kind, those without a file included.
std::map<std::string, FileSums> SumFiles(const std::string& store, const LiveSegments& live) {
  std::map<std::string, FileSums> sums;
  for (const char* kind : {"segments", "spares", "snapshot_tables", "index_tables", "other"}) {
    sums[kind] = {};
  }
  const Result<io::World> world = io::MakeRealWorld(io::IoBackend::kThreads);
  std::error_code error;
  fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator it(store, error); !error && it != end;
       it.increment(error)) {
    std::error_code vanished;  // A live writer renames and removes files at any time.
    if (!it->is_regular_file(vanished)) continue;
    const auto info = world->files->Info(it->path().string());
    if (!info.ok()) continue;
    FileSums& sum = sums[KindOfFile(it->path(), live)];
    ++sum.count;
    sum.bytes += info->bytes;
    sum.allocated += info->allocated_bytes;
  }
  return sums;
}

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
  line("tokens", number(metrics["tokens"]));
  line("raw bytes", BytesText(metrics["raw_bytes"]));
  line("stored", BytesText(metrics["stored_bytes"]) + ", " + Decimal(stat["stored_ratio"]) +
                     " times the raw bytes");
  line("written", BytesText(metrics["written_bytes_day"]) +
                      " in the last 24 hours, as of the last checkpoint");
  line("mean chain", Decimal(stat["mean_chain"]) + " deltas, " +
                         Plural(metrics["chain_lanes"], "lane") + " of KV");
  line("last sequence", number(stat["last_sequence"]));
  line("segment size", BytesText(stat["segment_bytes"]));
  for (const auto& [kind, files] : stat["files"].items()) {
    std::string words = kind;
    std::replace(words.begin(), words.end(), '_', ' ');
    std::string text = Plural(files["count"], "file") + ", " + BytesText(files["bytes"]) + ", " +
                       BytesText(files["allocated_bytes"]) + " on disk";
    if (kind == "snapshot_tables" && files["count"] != 0) {
      text += ", " + BytesText(metrics["table_live_bytes"]) + " still needed";
    }
    line(words.c_str(), text);
  }
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
  CAIRN_ASSIGN_OR_RETURN(const io::World world, io::MakeRealWorld(io::IoBackend::kThreads));
  CAIRN_ASSIGN_OR_RETURN(const engine::Manifest manifest,
                         engine::ReadManifest(*world.files, arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const engine::StoreOptionsFile chosen,
                         engine::ReadOptionsFile(*world.files, arguments.store));
  const StoreMetrics metrics = store.Metrics();
  Json files = Json::object();
  for (const auto& [kind, sum] :
       SumFiles(arguments.store, {manifest.log_start_segment, metrics.log_segments})) {
    files[kind] = {{"count", sum.count}, {"bytes", sum.bytes}, {"allocated_bytes", sum.allocated}};
  }
  const Json stat = {{"store", arguments.store},
                     {"store_id", Hex(std::as_bytes(std::span(manifest.store.bytes)))},
                     {"created_at_ns", manifest.created_at_ns},
                     {"format_version", kFormatVersion},
                     {"branches", metrics.branches},
                     {"nodes", metrics.nodes},
                     {"models", metrics.models},
                     {"last_sequence", metrics.last_sequence},
                     {"stored_ratio", metrics.stored_ratio()},
                     {"mean_chain", metrics.mean_chain()},
                     {"segment_bytes", manifest.segment_bytes},
                     {"files", files},
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
      "serves from the store alone: there, Store::Health and Store::PrometheusText tell.",
      "  cairn stat state\n"
      "  cairn stat state --json | jq .health\n"
      "  cairn stat state --prometheus > /var/lib/node_exporter/cairn.prom",
      stat, RunStat);
  AddStoreArgument(command, &stat->store);
  command->add_flag("--prometheus", stat->prometheus, "Print the metrics as Prometheus reads them");
}

}  // namespace cairn::cli
