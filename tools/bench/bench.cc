// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/bench.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "base/core/check.h"
#include "tools/bench/machine.h"

namespace cairn::bench {
namespace {

std::atomic<bool> interrupted{false};

std::string Format(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 1000 ? "%.0f" : value >= 10 ? "%.1f" : "%.3f", value);
  return text;
}

Status RunBlock(Arm& arm, double block_us) {
  if (arm.before_block) CAIRN_RETURN_IF_ERROR(arm.before_block());
  const size_t first = arm.op_us.size();
  const double cpu_before = ProcessCpuSeconds();
  const uint64_t faults_before = ProcessMinorFaults();
  double prepare_cpu = 0;
  Arm::Block block;
  const double begin = NowUs();
  while (block.ops < arm.max_ops_per_block && (block.ops == 0 || NowUs() - begin < block_us)) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    if (arm.prepare) {
      const double cpu = ThreadCpuSeconds();
      CAIRN_RETURN_IF_ERROR(arm.prepare());
      prepare_cpu += ThreadCpuSeconds() - cpu;
    }
    double inner_us = 0;
    const double start = NowUs();
    Status status = arm.op(&inner_us);
    const double elapsed = NowUs() - start;
    CAIRN_RETURN_IF_ERROR(status.WithContext(arm.name));
    arm.op_us.push_back(elapsed);
    arm.inner_us.push_back(inner_us);
    block.total_us += elapsed;
    ++block.ops;
  }
  arm.cpu_s += ProcessCpuSeconds() - cpu_before - prepare_cpu;
  arm.faults += ProcessMinorFaults() - faults_before;
  const auto skip = static_cast<ptrdiff_t>(first);
  block.p50_us = Median({arm.op_us.begin() + skip, arm.op_us.end()});
  block.p50_inner_us = Median({arm.inner_us.begin() + skip, arm.inner_us.end()});
  arm.blocks.push_back(block);
  return Status::Ok();
}

// Median of each side, and the extremes of the quotient of blocks of the same round.
template <typename F>
Ratio RatioOverBlocks(const Arm& numerator, const Arm& denominator, F figure) {
  CAIRN_CHECK(!numerator.blocks.empty() && !denominator.blocks.empty());
  std::vector<double> above, below, quotients;
  const size_t rounds = std::min(numerator.blocks.size(), denominator.blocks.size());
  for (size_t round = 0; round < rounds; ++round) {
    above.push_back(figure(numerator, numerator.blocks[round]));
    below.push_back(figure(denominator, denominator.blocks[round]));
    quotients.push_back(above.back() / below.back());
  }
  const auto [min, max] = std::minmax_element(quotients.begin(), quotients.end());
  return {Median(above) / Median(below), *min, *max};
}

double UnitsPerS(const Arm& arm, const Arm::Block& block) {
  return static_cast<double>(block.ops * arm.units_per_op) / (block.total_us * 1e-6);
}

double BytesPerS(const Arm& arm, const Arm::Block& block) {
  return static_cast<double>(block.ops * arm.bytes_per_op) / (block.total_us * 1e-6);
}

}  // namespace

double Quantile(std::vector<double> samples, double quantile) {
  if (samples.empty()) return 0;
  const double rank = quantile * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<ptrdiff_t>(rank);
  const double part = rank - static_cast<double>(below);
  std::nth_element(samples.begin(), samples.begin() + below, samples.end());
  const double low = samples[static_cast<size_t>(below)];
  if (part == 0) return low;
  return low + part * (*std::min_element(samples.begin() + below + 1, samples.end()) - low);
}

double Arm::units_per_s() const {
  std::vector<double> rates;
  for (const Block& block : blocks) rates.push_back(UnitsPerS(*this, block));
  return Median(rates);
}

double Arm::gb_per_s() const {
  std::vector<double> rates;
  for (const Block& block : blocks) rates.push_back(BytesPerS(*this, block));
  return Median(rates) * 1e-9;
}

double Arm::cpu_s_per_gb() const {
  return cpu_s / (static_cast<double>(ops() * bytes_per_op) * 1e-9);
}

double Arm::faults_per_gb() const {
  return static_cast<double>(faults) / (static_cast<double>(ops() * bytes_per_op) * 1e-9);
}

Status RunInterleaved(const Config& config, const std::string& title, std::vector<Arm*> arms) {
  const size_t count = arms.size();
  const double block_us = config.seconds * 1e6 / (config.rounds * static_cast<double>(count));
  Progress progress(title, config.rounds * count);
  for (uint32_t round = 0; round < config.rounds; ++round) {
    for (size_t i = 0; i < count; ++i) {
      CAIRN_RETURN_IF_ERROR(RunBlock(*arms[(round + i) % count], block_us));
      progress.Step();
    }
  }
  return Status::Ok();
}

Ratio RatioOfP50(const Arm& numerator, const Arm& denominator) {
  Ratio ratio = RatioOverBlocks(numerator, denominator,
                                [](const Arm&, const Arm::Block& block) { return block.p50_us; });
  ratio.value = numerator.p50_us() / denominator.p50_us();
  return ratio;
}

Ratio RatioOfQuantile(const Arm& numerator, const Arm& denominator, double quantile) {
  Ratio ratio{.value = Quantile(numerator.op_us, quantile) / Quantile(denominator.op_us, quantile)};
  ptrdiff_t above = 0, below = 0;  // Where the operations of the round begin.
  const size_t rounds = std::min(numerator.blocks.size(), denominator.blocks.size());
  for (size_t round = 0; round < rounds; ++round) {
    const auto of_round = [&](const Arm& arm, ptrdiff_t* at) {
      const ptrdiff_t begin = *at;
      *at += static_cast<ptrdiff_t>(arm.blocks[round].ops);
      return Quantile({arm.op_us.begin() + begin, arm.op_us.begin() + *at}, quantile);
    };
    const double quotient = of_round(numerator, &above) / of_round(denominator, &below);
    ratio.min = round == 0 ? quotient : std::min(ratio.min, quotient);
    ratio.max = round == 0 ? quotient : std::max(ratio.max, quotient);
  }
  return ratio;
}

Ratio RatioOfP50ToInner(const Arm& numerator, const Arm& denominator) {
  Ratio ratio =
      RatioOverBlocks(numerator, denominator, [&](const Arm& arm, const Arm::Block& block) {
        return &arm == &numerator ? block.p50_us : block.p50_inner_us;
      });
  ratio.value = numerator.p50_us() / denominator.p50_inner_us();
  return ratio;
}

Ratio RatioOfUnits(const Arm& numerator, const Arm& denominator) {
  return RatioOverBlocks(numerator, denominator, UnitsPerS);
}

Ratio RatioOfBytes(const Arm& numerator, const Arm& denominator) {
  return RatioOverBlocks(numerator, denominator, BytesPerS);
}

void Report::Value(const std::string& name, double value, const std::string& meaning) {
  Value(name, value);
  value_lines_.push_back({name + " " + Format(value), meaning});
}

void Report::Text(const std::string& name, const std::string& value, const std::string& meaning) {
  values_[name] = value;
  value_lines_.push_back({name + " " + value, meaning});
}

void Report::AddRatio(const std::string& name, const Ratio& ratio) {
  ratios_[name] = ratio.value;
  Value(name + "_min", ratio.min);
  Value(name + "_max", ratio.max);
}

void Report::AddRatio(const std::string& name, const Ratio& ratio, const std::string& meaning) {
  AddRatio(name, ratio);
  ratio_lines_.push_back(
      {name + " " + Format(ratio.value) + " (" + Format(ratio.min) + ".." + Format(ratio.max) + ")",
       meaning});
}

nlohmann::json Report::ToJson(const std::string& bench) const {
  return {{"bench", bench}, {"machine", machine_}, {"values", values_}, {"ratios", ratios_}};
}

void Report::Print(const std::string& bench) const {
  std::printf("%s\n", bench.c_str());
  for (const auto& [name, value] : machine_.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    std::printf("  %-14s %s\n", name.c_str(), text.c_str());
  }
  for (const std::string& row : rows_) std::printf("%s\n", row.c_str());
  if (!value_lines_.empty()) std::printf("values\n");
  for (const Line& line : value_lines_) {
    std::printf("  %-38s %s\n", line.text.c_str(), line.meaning.c_str());
  }
  if (!ratio_lines_.empty()) std::printf("ratios (smallest..largest over the rounds)\n");
  for (const Line& line : ratio_lines_) {
    std::printf("  %-50s %s\n", line.text.c_str(), line.meaning.c_str());
  }
}

Progress::Progress(std::string title, uint64_t steps)
    : title_(std::move(title)), steps_(steps), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_) std::fprintf(stderr, "\r\033[K");
}

void Progress::Step() {
  ++done_;
  if (!terminal_) return;
  constexpr uint64_t kWidth = 40;
  const auto filled =
      static_cast<size_t>(std::min(kWidth, done_ * kWidth / std::max(steps_, uint64_t{1})));
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  std::fprintf(stderr, "\r%s [%s] %3llu %%", title_.c_str(), bar.c_str(),
               static_cast<unsigned long long>(done_ * 100 / std::max(steps_, uint64_t{1})));
}

bool Interrupted() { return interrupted.load(std::memory_order_relaxed); }

void CatchInterrupts() {
  const auto handler = [](int) { interrupted.store(true, std::memory_order_relaxed); };
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
}

}  // namespace cairn::bench
