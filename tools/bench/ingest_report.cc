// SPDX-License-Identifier: Apache-2.0
//
// What `load ingest` says: a table for people, and every figure of it by name for programs.

#include <array>
#include <cmath>
#include <cstdio>

#include "tools/bench/ingest.h"

namespace cairn::bench {
namespace {

struct Column {
  const char* head;
  const char* figure;  // Its name behind that of the arm.
  double scale;        // From the figure to what people read.
};
constexpr Column kColumns[] = {
    {"GB/s", "gb_per_s", 1},
    {"until quiet", "settled_gb_per_s", 1},
    {"p50 ms", "p50_us", 1e-3},
    {"p99 ms", "p99_us", 1e-3},
    {"CPU s/GB", "cpu_s_per_gb", 1},
    {"faults/GB", "faults_per_gb", 1},
    {"disk B/B", "device_per_byte", 1},
    {"packed", "packed_ratio", 1},
};
using Figures = std::array<double, std::size(kColumns)>;  // NaN: none.
constexpr const char* kRatioHeads[] = {"to fresh", "quiet to it", "to used"};

std::string Line(const std::string& name, const std::vector<std::string>& texts) {
  char text[64];
  std::snprintf(text, sizeof text, "  %-24s", name.c_str());
  std::string line = text;
  for (const std::string& one : texts) {
    std::snprintf(text, sizeof text, "%12s", one.c_str());
    line += text;
  }
  return line;
}

std::string Digits(double value) {
  if (std::isnan(value)) return "";
  char text[32];
  std::snprintf(text, sizeof text, std::abs(value) >= 100 ? "%.0f" : "%.3g", value);
  return text;
}

// The ratios, if there are any, stand behind the figures.
void TellArm(const std::string& name, const Figures& figures, const std::vector<double>& ratios,
             Report* report) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < figures.size(); ++i) {
    texts.push_back(Digits(figures[i] * kColumns[i].scale));
    if (!std::isnan(figures[i])) report->Value(name + "_" + kColumns[i].figure, figures[i]);
  }
  for (const double ratio : ratios) texts.push_back(Digits(ratio));
  report->Row(Line(name, texts));
}

Figures FiguresOf(const Load& load) {
  return {load.gb_per_s(),
          std::nan(""),
          load.p(0.5),
          load.p(0.99),
          load.cpu_s_per_gb(),
          load.all_faults_per_gb(),
          load.device_bytes_per_byte(),
          std::nan("")};
}

Figures FiguresOf(const StoreLoad& load) {
  return {load.acked.gb_per_s(),       load.settled_gb_per_s(),
          load.acked.p(0.5),           load.acked.p(0.99),
          load.settled_cpu_s_per_gb(), load.faults_per_gb(),
          load.device_per_byte(),      load.packed_ratio};
}

// Returns those of kRatioHeads, which people get as well.
std::vector<double> CompareWithRaw(const std::string& name, const StoreLoad& store,
                                   const IngestCell& cell, Report* report) {
  const Load &used = cell.raw_used, &fresh = cell.raw_fresh;
  const auto latency = [&](double quantile) {
    const double ratio = store.acked.p(quantile) / fresh.p(quantile);
    return Ratio{ratio, ratio, ratio};
  };
  const std::pair<const char*, Ratio> ratios[] = {
      {"_p50_to_raw_fresh", latency(0.5)},
      {"_p99_to_raw_fresh", latency(0.99)},
      {"_settled_to_raw_used", RatioOfRates(store.settled_rates(), used.rates())},
      {"_to_raw_fresh", RatioOfRates(store.acked.rates(), fresh.rates())},
      {"_settled_to_raw_fresh", RatioOfRates(store.settled_rates(), fresh.rates())},
      {"_to_raw_used", RatioOfRates(store.acked.rates(), used.rates())}};
  std::vector<double> all;
  for (const auto& [ratio, value] : ratios) {
    report->AddRatio(name + ratio, value);
    all.push_back(value.value);
  }
  report->Value(name + "_cpu_s_per_gb_above_raw",
                store.settled_cpu_s_per_gb() - fresh.cpu_s_per_gb());
  return {all.end() - std::ssize(kRatioHeads), all.end()};
}

}  // namespace

void ReportCell(const IngestCell& cell, Report* report) {
  const std::string name = cell.shape.name();
  std::vector<std::string> heads;
  for (const Column& column : kColumns) heads.push_back(column.head);
  const bool has_raw = cell.raw_fresh.gb() > 0;
  if (has_raw) heads.insert(heads.end(), std::begin(kRatioHeads), std::end(kRatioHeads));
  report->Row(Line(name, heads));
  const std::pair<const char*, const Load*> others[] = {{"_raw_used", &cell.raw_used},
                                                        {"_raw_fresh", &cell.raw_fresh},
                                                        {"_lmdb", &cell.lmdb},
                                                        {"_files", &cell.files}};
  for (const auto& [arm, load] : others) {
    if (load->gb() > 0) TellArm(name + arm, FiguresOf(*load), {}, report);
  }
  const std::pair<const char*, const StoreLoad*> stores[] = {{"_model", &cell.model},
                                                             {"_random", &cell.random}};
  for (const auto& [kv, store] : stores) {
    if (!store->has_settled()) continue;
    const std::string arm = name + kv;
    const auto runs = static_cast<double>(store->acked.rates().size());
    report->Value(arm + "_run_gb", store->acked.gb() / runs);
    std::vector<double> ratios;
    if (has_raw) ratios = CompareWithRaw(arm, *store, cell, report);
    TellArm(arm, FiguresOf(*store), ratios, report);
  }
}

void ReportNoDisk(const NoDiskCell& cell, Report* report) {
  const std::string name = cell.name + "_no_disk";
  report->Row(
      Line(name, {"GB/s", "GB/s a core", "until quiet", "a core", "p50 ms", "written B/B"}));
  for (size_t i = 0; i < std::size(cell.acked); ++i) {
    const StoreLoad &acked = cell.acked[i], &settled = cell.settled[i];
    const std::string arm = name + "_" + std::to_string(i + 1) + "t";
    const double written = static_cast<double>(settled.machine_bytes) / (settled.acked.gb() * 1e9);
    const std::pair<const char*, double> figures[] = {
        {"_gb_per_s", acked.acked.gb_per_s()},
        {"_gb_per_cpu_s", acked.acked_gb_per_cpu_s()},
        {"_settled_gb_per_s", settled.settled_gb_per_s()},
        {"_settled_gb_per_cpu_s", settled.settled_gb_per_cpu_s()},
        {"_p50_ms", acked.acked.p(0.5) * 1e-3},
        {"_written_per_byte", written}};
    std::vector<std::string> texts;
    for (const auto& [figure, value] : figures) {
      texts.push_back(Digits(value));
      report->Value(arm + figure, value);
    }
    report->Row(Line(arm, texts));
  }
  report->AddRatio(name + "_2t_to_1t",
                   RatioOfRates(cell.acked[1].acked.rates(), cell.acked[0].acked.rates()));
}

}  // namespace cairn::bench
