// SPDX-License-Identifier: Apache-2.0

#include "tools/demo/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>

#include "base/core/text.h"
#include "tools/demo/printable.h"

namespace cairn::demo {
namespace {

std::string Milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f ms", ms < 10 ? 2 : 0, ms);
  return text;
}

std::string Times(double factor) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f times", factor < 10 ? 1 : 0, factor);
  return text;
}

std::string Row(std::initializer_list<std::string> cells) {
  static constexpr size_t kWidths[] = {37, 9, 9, 9, 0};
  std::string line = " ";
  size_t column = 0;
  for (const std::string& cell : cells) line += " " + Padded(cell, kWidths[column++]);
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string Goal(const Samples& samples, double goal_ms) {
  return "goal P95 < " + std::to_string(static_cast<int>(goal_ms)) +
         " ms: " + (samples.Quantile(0.95) < goal_ms ? "met" : "missed");
}

std::string TimeRow(const std::string& what, const Samples& samples, const std::string& remark) {
  return Row({what + ", " + std::to_string(samples.count()) + " times",
              Milliseconds(samples.Quantile(0.5)), Milliseconds(samples.Quantile(0.95)),
              Milliseconds(samples.Quantile(0.99)), remark});
}

std::string SpaceRow(const std::string& what, uint64_t bytes, const std::string& remark) {
  return Row({what, BytesText(bytes), remark});
}

nlohmann::json GoalJson(const Samples& samples, double goal_ms) {
  return {{"p95_ms", goal_ms}, {"met", samples.Quantile(0.95) < goal_ms}};
}

}  // namespace

double Samples::Quantile(double quantile) const {
  if (ms_.empty()) return 0;
  std::vector<double> sorted = ms_;
  std::sort(sorted.begin(), sorted.end());
  const double rank = std::ceil(quantile * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

nlohmann::json Samples::ToJson() const {
  return {{"count", count()},
          {"p50", Quantile(0.5)},
          {"p95", Quantile(0.95)},
          {"p99", Quantile(0.99)},
          {"max", Quantile(1)}};
}

bool Report::AllProved() const {
  return !proofs.empty() && std::all_of(proofs.begin(), proofs.end(), [](const Proof& proof) {
    return proof.difference.empty();
  });
}

nlohmann::json Report::ToJson() const {
  nlohmann::json json = {{"seed", seed},
                         {"tokens", tokens},
                         {"io", io_name},
                         {"sync_method", sync_method},
                         {"all_proved", AllProved()},
                         {"kills", nlohmann::json::array()},
                         {"proofs", nlohmann::json::array()},
                         {"branches", branches}};
  for (const Kill& kill : kills) {
    json["kills"].push_back({{"acknowledged", kill.acknowledged},
                             {"recovered", kill.recovered},
                             {"open_ms", kill.open_ms}});
  }
  for (const Proof& proof : proofs) {
    json["proofs"].push_back({{"claim", proof.claim},
                              {"proved", proof.difference.empty()},
                              {"difference", proof.difference}});
  }
  json["ms"] = {{"append", append.ToJson()},
                {"open", open.ToJson()},
                {"restore", restore.ToJson()},
                {"recompute", recompute.ToJson()},
                {"fork", fork.ToJson()}};
  json["goals"] = {{"save", GoalJson(append, kSaveGoalMs)},
                   {"restore", GoalJson(restore, kRestoreGoalMs)}};
  json["space"] = {{"kv_bytes_per_token", space.position_bytes},
                   {"stored_positions", space.stored_positions},
                   {"copied_positions", space.copied_positions},
                   {"fork_log_bytes", space.fork_log_bytes},
                   {"fork_own_positions", space.fork_own_positions},
                   {"physical_bytes", space.metrics.physical_bytes},
                   {"log_segments", space.metrics.log_segments},
                   {"log_spare_segments", space.metrics.log_spare_segments}};
  return json;
}

std::string Report::Table() const {
  const auto kv = [&](uint64_t positions) { return positions * space.position_bytes; };
  const double faster = recompute.Quantile(0.5) / std::max(restore.Quantile(0.5), 1e-6);
  std::string table = Row({"", "p50", "p95", "p99"});
  table += TimeRow("append a token at kPower", append, Goal(append, kSaveGoalMs));
  table += TimeRow("restore a branch", restore, Goal(restore, kRestoreGoalMs));
  table += TimeRow("recompute the same prefix", recompute, Times(faster) + " the restore");
  table += TimeRow("open the store", open, "after kills and closes alike");
  table += TimeRow("fork at kPower", fork, "");
  table += "\n";
  table += SpaceRow("log written by a fork", space.fork_log_bytes, "padding of its group included");
  table += SpaceRow(
      "KV of its own, a branch", kv(space.fork_own_positions),
      std::to_string(space.fork_own_positions) + " tokens of " + BytesText(space.position_bytes));
  table += SpaceRow("KV of all branches", kv(space.stored_positions),
                    BytesText(kv(space.copied_positions)) + " if each were a copy");
  const StoreMetrics& metrics = space.metrics;
  table += SpaceRow("files, on disk", metrics.physical_bytes,
                    std::to_string(metrics.log_segments) + " log segments and " +
                        std::to_string(metrics.log_spare_segments) + " ready, of " +
                        BytesText(metrics.segment_bytes) + ": each");
  table += Row({"", "", "has its blocks before it is written, so that a full"});
  table += Row({"", "", "disk fails no write; sealing gives them back"});
  table.pop_back();
  return table;
}

}  // namespace cairn::demo
