// SPDX-License-Identifier: Apache-2.0
//
// top: how a store changes while another process writes it. Each look reopens the store for
// reading, which is the one way to see another process's changes; so it shows what the files show,
// and never the writer's counters, latencies and queues.
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/seen_objects.h"

namespace cairn::cli {

namespace {

// A new header for a terminal that has scrolled.
constexpr uint64_t kHeaderEvery = 20;

struct TopArguments {
  std::string store;
  uint64_t interval_s = 2;
  uint64_t count = 0;  // 0: until interrupted.
};

struct Look {
  std::chrono::steady_clock::time_point at;
  uint64_t time_ns = 0;  // Since 1970.
  StoreMetrics metrics;  // Branches, nodes and tokens without those of objects.
  uint64_t objects = 0;
};

Result<Look> TakeLook(const std::string& path) {
  Look look;
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(path));
  look.at = std::chrono::steady_clock::now();
  look.time_ns = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                           std::chrono::system_clock::now().time_since_epoch())
                                           .count());
  look.metrics = store.Metrics();
  CAIRN_ASSIGN_OR_RETURN(const SeenObjects objects, SeeObjects(store));
  CAIRN_ASSIGN_OR_RETURN(const BranchCounts counts, CountBranches(store, look.metrics, objects));
  look.metrics.branches = counts.branches;
  look.metrics.nodes = counts.nodes;
  look.metrics.tokens = counts.tokens;
  look.objects = objects.count;
  return look;
}

// Figures that may shrink.
struct Growth {
  double tokens = 0, records = 0, raw_bytes = 0, stored_bytes = 0;  // A second.
};

Growth GrowthBetween(const Look& before, const Look& now) {
  const double seconds = std::chrono::duration<double>(now.at - before.at).count();
  const auto rate = [&](uint64_t StoreMetrics::* field) {
    return static_cast<double>(static_cast<int64_t>(now.metrics.*field - before.metrics.*field)) /
           seconds;
  };
  return {.tokens = rate(&StoreMetrics::tokens),
          .records = rate(&StoreMetrics::last_sequence),
          .raw_bytes = rate(&StoreMetrics::raw_bytes),
          .stored_bytes = rate(&StoreMetrics::stored_bytes)};
}

void PrintLookAsJson(const Look& look, const std::optional<Growth>& growth) {
  const StoreMetrics& m = look.metrics;
  Json line = {{"time_ns", look.time_ns},
               {"branches", m.branches},
               {"nodes", m.nodes},
               {"tokens", m.tokens},
               {"objects", look.objects},
               {"records", m.last_sequence},
               {"raw_bytes", m.raw_bytes},
               {"stored_bytes", m.stored_bytes},
               {"stored_ratio", m.stored_ratio()},
               {"mean_chain", m.mean_chain()},
               {"per_second", nullptr}};
  if (growth.has_value()) {
    line["per_second"] = {{"tokens", growth->tokens},
                          {"records", growth->records},
                          {"raw_bytes", growth->raw_bytes},
                          {"stored_bytes", growth->stored_bytes}};
  }
  PrintJsonLine(line);
}

std::string SignedBytes(double bytes) {
  return (bytes < 0 ? "-" : "") + BytesText(static_cast<uint64_t>(bytes < 0 ? -bytes : bytes));
}

void PrintLook(const Look& look, const std::optional<Growth>& growth, uint64_t row) {
  if (row % kHeaderEvery == 0) {
    std::printf("%-8s %9s %9s %12s %9s %10s %10s %10s %10s %10s %7s\n", "TIME", "BRANCHES", "NODES",
                "TOKENS", "OBJECTS", "TOKENS/S", "RECORDS/S", "RAW/S", "RAW", "STORED", "CHAIN");
  }
  const StoreMetrics& m = look.metrics;
  const auto rate = [&](double Growth::* field) {
    char text[32] = "-";
    if (growth.has_value()) std::snprintf(text, sizeof text, "%.1f", (*growth).*field);
    return std::string(text);
  };
  std::printf("%-8s %9llu %9llu %12llu %9llu %10s %10s %10s %10s %10s %7.2f\n",
              TimeText(look.time_ns).substr(11, 8).c_str(),
              static_cast<unsigned long long>(m.branches), static_cast<unsigned long long>(m.nodes),
              static_cast<unsigned long long>(m.tokens),
              static_cast<unsigned long long>(look.objects), rate(&Growth::tokens).c_str(),
              rate(&Growth::records).c_str(),
              growth.has_value() ? SignedBytes(growth->raw_bytes).c_str() : "-",
              BytesText(m.raw_bytes).c_str(), BytesText(m.stored_bytes).c_str(), m.mean_chain());
}

Result<int> RunTop(const TopArguments& arguments, bool json) {
  std::optional<Look> before;
  for (uint64_t row = 0; arguments.count == 0 || row < arguments.count; ++row) {
    if (row > 0) std::this_thread::sleep_for(std::chrono::seconds(arguments.interval_s));
    CAIRN_ASSIGN_OR_RETURN(const Look now, TakeLook(arguments.store));
    std::optional<Growth> growth;
    if (before.has_value()) growth = GrowthBetween(*before, now);
    if (json) {
      PrintLookAsJson(now, growth);
    } else {
      PrintLook(now, growth, row);
    }
    if (std::fflush(stdout) != 0) break;  // Nobody reads; the program reports it.
    before = now;
  }
  return kExitOk;
}

}  // namespace

void AddTopCommand(CLI::App& app, Session& session) {
  const auto top = std::make_shared<TopArguments>();
  CLI::App* command = AddCommand(
      app, session, "top", Access::kLooks,
      "Watch a store grow while another process writes it\n\n"
      "Opens the store for reading again and again, so it shows what the files tell: contents,\n"
      "sizes and their growth a second. Calls, latencies and queues are known to the process that\n"
      "serves from the store alone (Store::PrometheusText there). Opening replays the headers of\n"
      "the log, and objects are listed to be counted: watch a large store at a long interval.\n"
      "RAW is contents before packing, STORED the length of the files that hold them.",
      "  cairn top state\n"
      "  cairn top state --interval 10 --count 6 --json | jq .per_second.tokens",
      top, RunTop);
  AddStoreArgument(command, &top->store);
  AddNumberOption(command, "--interval", &top->interval_s, "Seconds between two looks")
      ->check(CLI::Range(uint64_t{1}, uint64_t{86'400}))
      ->capture_default_str();
  AddNumberOption(command, "--count", &top->count, "How many looks; 0: until interrupted")
      ->capture_default_str();
}

}  // namespace cairn::cli
