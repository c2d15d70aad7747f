// SPDX-License-Identifier: Apache-2.0
//
// create, stat, verify: the store as a whole.
#include <cstdio>
#include <filesystem>
#include <map>

#include "base/core/check.h"
#include "engine/commit/manifest.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace cairn::cli {

namespace {

namespace fs = std::filesystem;

// --- create

struct CreateArguments {
  std::string store;
  uint64_t segment_bytes = Options().segment_bytes;
};

Result<int> RunCreate(const CreateArguments& arguments, bool json) {
  Options options = WritingOptions();
  options.create_if_missing = true;
  options.error_if_exists = true;
  options.segment_bytes = arguments.segment_bytes;
  Result<Store> made = Store::Open(arguments.store, options);
  if (!made.ok()) return NameOption(made.status(), "options.segment_bytes", "--segment-bytes");
  Store& store = *made;
  const std::string sync_method = store.sync_method();
  CAIRN_RETURN_IF_ERROR(store.Close());
  if (json) {
    PrintJson({{"store", arguments.store},
               {"segment_bytes", arguments.segment_bytes},
               {"sync_method", sync_method}});
  } else {
    std::printf("%s: a new store, segments of %s, made durable by %s\n", arguments.store.c_str(),
                BytesText(arguments.segment_bytes).c_str(), sync_method.c_str());
  }
  return kExitOk;
}

// --- stat

struct StatArguments {
  std::string store;
};

struct FileSums {
  uint64_t count = 0, bytes = 0, allocated = 0;
};

// "log segments", "spare segments" and "other", by the names that the log gives its files.
std::map<std::string, FileSums> SumFiles(const std::string& store) {
  std::map<std::string, FileSums> sums;
  const Result<io::World> world = io::MakeRealWorld(io::IoBackend::kThreads);
  std::error_code error;
  fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator it(store, error); !error && it != end;
       it.increment(error)) {
    std::error_code vanished;  // A live writer renames and removes files at any time.
    if (!it->is_regular_file(vanished)) continue;
    const auto info = world->files->Info(it->path().string());
    if (!info.ok()) continue;
    const std::string name = it->path().filename().string();
    const bool log = it->path().extension() == ".log";
    FileSums& sum = sums[!log ? "other" : name.starts_with("spare-") ? "spares" : "segments"];
    ++sum.count;
    sum.bytes += info->bytes;
    sum.allocated += info->allocated_bytes;
  }
  return sums;
}

Json HistogramToJson(const LatencyHistogram& histogram) {
  return {{"count", histogram.count},
          {"p50_ns", histogram.QuantileNs(0.5)},
          {"p99_ns", histogram.QuantileNs(0.99)},
          {"max_ns", histogram.max_ns}};
}

Json MetricsToJson(const StoreMetrics& m) {
  return {{"tokens_appended", m.tokens_appended},
          {"kv_bytes_appended", m.kv_bytes_appended},
          {"appends", m.appends},
          {"forks", m.forks},
          {"rewinds", m.rewinds},
          {"drops", m.drops},
          {"restores", m.restores},
          {"restored_bytes", m.restored_bytes},
          {"restored_hot_bytes", m.restored_hot_bytes},
          {"restores_failed", m.restores_failed},
          {"busy", m.busy},
          {"cancelled", m.cancelled},
          {"kv_shed", m.kv_shed},
          {"log_groups", m.log_groups},
          {"log_records", m.log_records},
          {"log_syncs", m.log_syncs},
          {"log_bytes_written", m.log_bytes_written},
          {"log_bytes_prewritten", m.log_bytes_prewritten},
          {"log_segments", m.log_segments},
          {"log_spare_segments", m.log_spare_segments},
          {"physical_bytes", m.physical_bytes},
          {"hot_tail_bytes", m.hot_tail_bytes},
          {"written_sequence", m.written_sequence},
          {"durable_sequence", m.durable_sequence},
          {"save", HistogramToJson(m.save)},
          {"restore", HistogramToJson(m.restore)}};
}

void PrintStat(const Json& stat) {
  const auto line = [](const char* name, const std::string& value) {
    if (!value.empty()) std::printf("%-16s %s\n", name, Printable(value).c_str());
  };
  const auto number = [&](const char* key) { return std::to_string(stat[key].get<uint64_t>()); };
  line("store", stat["store"]);
  line("store id", stat["store_id"]);
  line("created", TimeText(stat["created_at_ns"]));
  line("format", number("format_version"));
  line("branches", number("branches"));
  line("nodes", number("nodes"));
  line("models", number("models"));
  line("last sequence", number("last_sequence"));
  line("segment size", BytesText(stat["segment_bytes"]));
  for (const auto& [kind, files] : stat["files"].items()) {
    line(kind.c_str(), Plural(files["count"], "file") + ", " + BytesText(files["bytes"]) + ", " +
                           BytesText(files["allocated_bytes"]) + " on disk");
  }
  line("durable by", stat["sync_method"]);
  line("measured", stat["sync_probe"]);
  line("file system", stat["volume"]);
  line("I/O here", stat["io_backend"]);
  line("recovery", stat["recovery_note"]);
}

Result<int> RunStat(const StatArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const io::World world, io::MakeRealWorld(io::IoBackend::kThreads));
  CAIRN_ASSIGN_OR_RETURN(const engine::Manifest manifest,
                         engine::ReadManifest(*world.files, arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const engine::StoreOptionsFile chosen,
                         engine::ReadOptionsFile(*world.files, arguments.store));
  const StoreMetrics metrics = store.Metrics();
  Json files = Json::object();
  for (const auto& [kind, sum] : SumFiles(arguments.store)) {
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
                     {"segment_bytes", manifest.segment_bytes},
                     {"files", files},
                     {"sync_method", store.sync_method()},
                     {"sync_probe", chosen.probe},
                     {"volume", chosen.volume},
                     {"io_backend", store.io_name()},
                     {"recovery_note", store.recovery_note()},
                     {"metrics", MetricsToJson(metrics)}};
  if (json) {
    PrintJson(stat);
  } else {
    PrintStat(stat);
  }
  return kExitOk;
}

// --- verify

struct VerifyArguments {
  std::string store;
  bool all = false;
};

// A store whose headers are damaged does not open at all; that is a finding, too.
Result<VerifyReport> Verify(const VerifyArguments& arguments) {
  const Result<Store> store = OpenForReading(arguments.store);
  if (store.ok()) return store->Verify(arguments.all ? VerifyLevel::kAll : VerifyLevel::kHeaders);
  if (store.status().code() != StatusCode::kCorruption) return store.status();
  VerifyReport report;
  report.damages.push_back({arguments.store, std::string(store.status().message()), 0});
  return report;
}

Result<int> RunVerify(const VerifyArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const VerifyReport report, Verify(arguments));
  if (json) {
    Json damages = Json::array();
    for (const VerifyReport::Damage& damage : report.damages) {
      damages.push_back(
          {{"where", damage.where}, {"what", damage.what}, {"sequence", damage.sequence}});
    }
    PrintJson({{"ok", report.damages.empty()},
               {"level", arguments.all ? "all" : "headers"},
               {"records", report.records},
               {"strips", report.strips},
               {"bytes", report.bytes},
               {"damages", damages}});
  } else {
    for (const VerifyReport::Damage& damage : report.damages) {
      const std::string record =
          damage.sequence == 0 ? "" : " (record " + std::to_string(damage.sequence) + ")";
      std::printf("DAMAGED  %s%s: %s\n", Printable(damage.where).c_str(), record.c_str(),
                  Printable(damage.what).c_str());
    }
    const std::string payload = arguments.all ? ", " + Plural(report.strips, "strip") + ", " +
                                                    BytesText(report.bytes) + " of payload"
                                              : " (headers only; --all reads every byte)";
    std::printf("%s: %s checked%s: %s\n", arguments.store.c_str(),
                Plural(report.records, "record").c_str(), payload.c_str(),
                report.damages.empty() ? "no damage"
                                       : Plural(report.damages.size(), "damaged place").c_str());
  }
  return report.damages.empty() ? kExitOk : kExitDamage;
}

}  // namespace

void AddStoreCommands(CLI::App& app, Session& session) {
  const auto create = std::make_shared<CreateArguments>();
  CLI::App* command = AddCommand(
      app, session, "create",
      "Make a new store\n\n"
      "Measures which way of making a write durable is faster on this volume, and keeps to it. "
      "Each\n"
      "command that writes begins a new log segment, so a store that is mostly written from the\n"
      "command line wants small ones.",
      "  cairn create state\n"
      "  cairn create notes --segment-bytes 1MiB",
      create, RunCreate);
  AddStoreArgument(command, &create->store);
  command
      ->add_option("--segment-bytes", create->segment_bytes,
                   "Size of a log segment, from 256KiB to 1GiB; fixed for ever")
      ->transform(CLI::AsSizeValue(false))
      ->transform(DecimalNumber(/*unit_allowed=*/true))  // Comes before the one above.
      ->default_str("64MiB");

  const auto stat = std::make_shared<StatArguments>();
  command =
      AddCommand(app, session, "stat", "Numbers about a store: contents, files, how it writes",
                 "  cairn stat state\n"
                 "  cairn stat state --json | jq .files",
                 stat, RunStat);
  AddStoreArgument(command, &stat->store);

  const auto verify = std::make_shared<VerifyArguments>();
  command = AddCommand(app, session, "verify",
                       "Check the stored bytes; exit code 4 when some are damaged\n\n"
                       "Reads the log from the device and lists each damaged place by file and\n"
                       "offset. What damage costs and how to go on: cairn repair.",
                       "  cairn verify state\n"
                       "  cairn verify state --all || echo damaged",
                       verify, RunVerify);
  AddStoreArgument(command, &verify->store);
  command->add_flag("--all", verify->all, "Also every byte of payload, not headers alone");
}

}  // namespace cairn::cli
