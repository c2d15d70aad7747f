// SPDX-License-Identifier: Apache-2.0
//
// A run longer than every pool: durable appends of 2 MiB to an engine that was just made, half as
// much again as its hot tail, caches, memtables, log and spare segments can hold together, and then
// all that it had put off. Engine by engine, each with the device to itself.

#include "tools/bench/load.h"
#include "tools/bench/peers/contest.h"

namespace cairn::bench {
namespace {

constexpr uint32_t kLongRounds = 2;
constexpr uint64_t kMinLongHotBytes = 8 << 20;  // However small --bytes is.
constexpr uint64_t kMinLogSegments = 4;         // The least for Options::log_bytes_max.
constexpr uint32_t kLongSpareSegments = 2;
constexpr uint64_t kCheckedChunks = 16;

// Pools of half of --bytes and less, so that a run of some of it is longer.
PeerOptions LongBudget(const Config& config, const ModelSpec& model) {
  PeerOptions options;
  options.model = model;
  options.hot_bytes = std::max(config.peer_bytes / 8, kMinLongHotBytes);
  options.cache_bytes = 4 * options.hot_bytes;
  options.log_bytes = std::max(config.peer_bytes, kMinLogSegments * config.segment_bytes);
  options.segment_bytes = config.segment_bytes;
  options.spare_segments = kLongSpareSegments;
  return options;
}

uint64_t RunChunks(const PeerOptions& options) {
  const uint64_t pools =
      options.cache_bytes + options.log_bytes + options.spare_segments * options.segment_bytes;
  return pools / 2 * 3 / kChunkBytes;
}

// One engine over all rounds.
struct Runner {
  const PeerKind kind;
  Load load{};                            // Until it had settled.
  std::vector<double> append_gb_per_s{};  // Appends alone.
};

class LongRun {
 public:
  LongRun(const Config& config, const std::string& scratch, const KvPool& source,
          const KvPool& target)
      : path_(scratch + "/long"),
        options_(LongBudget(config, source.model())),
        source_(source),
        target_(target) {}

  // In a directory of its own, which is removed.
  Status Go(Runner& runner, nlohmann::json* settings) {
    PeerOptions options = options_;
    options.path = path_ + "/" + runner.kind.name;
    std::filesystem::create_directories(path_);
    const Status status = Measure(runner, options, settings);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    return status.WithContext(runner.kind.name);
  }

  double bytes() const { return static_cast<double>(RunChunks(options_) * kChunkBytes); }

 private:
  Status Measure(Runner& runner, const PeerOptions& options, nlohmann::json* settings) {
    Contender contender;
    contender.scratch = MakeScratch(options.model, kChunkTokens);
    CAIRN_ASSIGN_OR_RETURN(contender.peer, runner.kind.open(options));
    (*settings)[runner.kind.name] = contender.peer->Settings();
    Grower grower(source_, 0, kChunkTokens, contender);
    double append_us = 0;
    Work work;
    work.ops_per_thread = RunChunks(options);
    work.bytes_per_op = kChunkBytes;
    work.prepare = [&](uint32_t) { grower.Prepare(); };
    work.op = [&](uint32_t, uint64_t) {
      const double begin = NowUs();
      const Status status = grower.Append(/*durable=*/true);
      append_us += NowUs() - begin;
      return status;
    };
    work.at_end = [&] { return contender.peer->FinishBackground(); };
    CAIRN_RETURN_IF_ERROR(runner.load.Run(work));
    runner.append_gb_per_s.push_back(bytes() * 1e-3 / append_us);
    CAIRN_RETURN_IF_ERROR(CheckSome(grower, contender));
    return contender.peer->Close();
  }

  // The oldest of it, out of wherever settling has put it.
  Status CheckSome(Grower& grower, Contender& contender) {
    const uint64_t chunks = std::min(kCheckedChunks, RunChunks(options_));
    SessionKv target(target_, 0, kChunkTokens, contender.sessions, contender.scratch.span());
    CAIRN_RETURN_IF_ERROR(contender.peer->Restore(target.Whole(chunks)));
    return target.CheckRestored(grower.kv, chunks);
  }

  const std::string path_;
  const PeerOptions options_;
  const KvPool& source_;
  const KvPool& target_;
};

// Cairn's to that of the best other; the range is over the rounds.
void ReportBest(const std::string& name, const std::vector<Runner>& runners,
                const std::function<const std::vector<double>&(const Runner&)>& rates,
                Report* report) {
  const auto best = std::max_element(
      runners.begin() + 1, runners.end(),
      [&](const Runner& a, const Runner& b) { return Median(rates(a)) < Median(rates(b)); });
  Ratio ratio{.value = Median(rates(runners[0])) / Median(rates(*best))};
  for (size_t round = 0; round < rates(*best).size(); ++round) {
    const double quotient = rates(runners[0])[round] / rates(*best)[round];
    ratio.min = round == 0 ? quotient : std::min(ratio.min, quotient);
    ratio.max = round == 0 ? quotient : std::max(ratio.max, quotient);
  }
  report->Text(name + "_best_peer", best->kind.name, "by that");
  report->AddRatio(name + "_to_best_peer", ratio, "higher is better");
}

void Tell(const std::vector<Runner>& runners, Report* report) {
  for (const Runner& runner : runners) {
    const Load& load = runner.load;
    const std::string& name = runner.kind.name;
    report->Value("long_gb_per_s_" + name, Median(runner.append_gb_per_s), "appends alone");
    report->Value("long_p99_us_" + name, load.p(0.99), "an append of 2 MiB, slow end");
    report->Value("long_longest_us_" + name, load.longest_us(), "of all of them");
    report->Value("settled_gb_per_s_" + name, load.gb_per_s(),
                  "until nothing is put off and nothing runs");
    report->Value("settled_cpu_s_per_gb_" + name, load.cpu_s_per_gb(), "CPU of all that");
    report->Value("settled_faults_per_gb_" + name, load.all_faults_per_gb(),
                  "minor page faults of all that");
    report->Value("settled_device_per_byte_" + name, load.device_bytes_per_byte(),
                  "bytes written a byte of KV");
  }
}

}  // namespace

Status RunLongAppends(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const KvPool source, MakePool(kPeerTokenBytes, config.source_bytes, 1));
  CAIRN_ASSIGN_OR_RETURN(const KvPool target,
                         MakePool(kPeerTokenBytes, kCheckedChunks * kChunkBytes, 2));
  LongRun run(config, scratch, source, target);
  std::vector<Runner> runners;
  for (const PeerKind& kind : PeerKinds()) {
    if (kind.open != nullptr) runners.push_back({.kind = kind});
  }
  nlohmann::json settings;
  const uint32_t rounds = std::min(kLongRounds, config.peer_rounds);
  Progress progress("long", rounds * runners.size());
  for (uint32_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < runners.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(run.Go(runners[(round + i) % runners.size()], &settings));
      progress.Step();
    }
  }
  report->Machine("settings_long", settings);
  report->Value("long_run_gb", run.bytes() * 1e-9, "KV of a run, one and a half times all pools");
  Tell(runners, report);
  ReportBest(
      "long", runners,
      [](const Runner& runner) -> const std::vector<double>& { return runner.append_gb_per_s; },
      report);
  ReportBest(
      "settled", runners,
      [](const Runner& runner) -> const std::vector<double>& { return runner.load.rates(); },
      report);
  return Status::Ok();
}

}  // namespace cairn::bench
