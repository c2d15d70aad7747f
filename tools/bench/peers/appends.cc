// SPDX-License-Identifier: Apache-2.0
//
// Durable appends: of 2 MiB in bursts, by eight threads, for longer than buffers hold, and of 8
// KiB.

#include <mutex>
#include <thread>

#include "tools/bench/peers/contest.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kThreadChunkTokens = 8;  // 1 MiB, by each of...
constexpr uint64_t kThreads = 8;
constexpr uint32_t kSustainedRounds = 2;

Status MeasureBurst(const Config& work, const KvPool& pool, RawFile& raw_file, Contest& contest,
                    std::vector<std::unique_ptr<Grower>>& growers, Report* report) {
  const uint64_t per_block = PerBlock(work.peer_bytes / 2, kChunkBytes, work.rounds);
  Arms arms;
  for (size_t i = 0; i < contest.size(); ++i) {
    Arm& arm = arms.Add(contest, i, kChunkBytes);
    arm.max_ops_per_block = per_block;
    arm.prepare = [grower = growers[i].get()] {
      grower->Prepare();
      return Status::Ok();
    };
    arm.op = [grower = growers[i].get()](double*) { return grower->Append(/*durable=*/true); };
  }
  auto raws = RawAppenders(raw_file, pool, kChunkTokens);
  std::vector<Arm*> all = arms.all();
  for (auto& raw : raws) {
    raw->arm().max_ops_per_block = per_block;
    raw->arm().before_block = [&contest] { return contest.SettleAll(); };
    all.push_back(&raw->arm());
  }
  CAIRN_RETURN_IF_ERROR(RunInterleaved(work, "burst", all));
  arms.ReportRates("burst", report);
  const Arm& raw = BestRaw(raws, report);
  for (size_t i = 0; i < contest.size(); ++i) {
    report->Value("burst_p50_us_" + arms[i].name, arms[i].p50_us(), "a durable append of 2 MiB");
  }
  report->Value("burst_gb_per_s_raw", raw.gb_per_s(), "gathered and written, nothing else");
  report->Value("cpu_s_per_gb_above_raw", arms[0].cpu_s_per_gb() - raw.cpu_s_per_gb(),
                "Cairn's CPU a GB appended, less that of gathering and writing");
  report->AddRatio("burst_to_raw", RatioOfBytes(arms[0], raw), "higher is better");
  return Status::Ok();
}

// Every thread appends to a session of its own.
Status MeasureThreads(const Config& work, const KvPool& pool, Contest& contest, Report* report) {
  constexpr uint64_t kAppendsPerOp = 2;  // By each thread.
  const uint64_t op_bytes = kThreads * kAppendsPerOp * kThreadChunkTokens * kPeerTokenBytes;
  std::vector<std::vector<std::unique_ptr<SessionKv>>> sessions(contest.size());
  std::vector<AlignedBuffer> buffers;
  std::vector<uint64_t> next(contest.size());
  Arms arms;
  for (size_t i = 0; i < contest.size(); ++i) {
    for (uint64_t t = 0; t < kThreads; ++t) {
      buffers.push_back(MakeScratch(pool.model(), kThreadChunkTokens));
      sessions[i].push_back(std::make_unique<SessionKv>(pool, FirstToken(pool, t),
                                                        kThreadChunkTokens, ++contest[i].sessions,
                                                        buffers.back().span()));
    }
    Arm& arm = arms.Add(contest, i, op_bytes);
    arm.max_ops_per_block = PerBlock(work.peer_bytes / 2, op_bytes, work.rounds);
    arm.op = [&, i](double*) {
      std::mutex mutex;
      Status failure;
      std::vector<std::thread> threads;
      for (auto& session : sessions[i]) {
        threads.emplace_back([&, kv = session.get()] {
          for (uint64_t k = 0; k < kAppendsPerOp; ++k) {
            const Status status = contest[i].peer->Append(kv->At(next[i] + k), /*durable=*/true);
            const std::lock_guard lock(mutex);
            if (!status.ok()) failure = status;
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      next[i] += kAppendsPerOp;
      return failure;
    };
  }
  CAIRN_RETURN_IF_ERROR(RunInterleaved(work, "threads", arms.all()));
  arms.ReportRates("threads", report);
  return Status::Ok();
}

// Blocks longer than the segments in stock, memtables and caches can hide.
Status MeasureSustained(Config work, Contest& contest,
                        std::vector<std::unique_ptr<Grower>>& growers, Report* report) {
  Arms arms;
  for (size_t i = 0; i < contest.size(); ++i) {
    Arm& arm = arms.Add(contest, i, kChunkBytes);
    arm.max_ops_per_block = PerBlock(work.peer_bytes / 8 * 9, kChunkBytes, 1);
    arm.prepare = [grower = growers[i].get()] {
      grower->Prepare();
      return Status::Ok();
    };
    arm.op = [grower = growers[i].get()](double*) { return grower->Append(/*durable=*/true); };
  }
  work.rounds = kSustainedRounds;
  work.seconds = 1e9;  // Bounded by bytes.
  CAIRN_RETURN_IF_ERROR(RunInterleaved(work, "sustained", arms.all()));
  arms.ReportRates("sustained", report);
  for (size_t i = 0; i < contest.size(); ++i) {
    report->Value("sustained_p99_us_" + arms[i].name, Quantile(arms[i].op_us, 0.99),
                  "an append of 2 MiB, slow end");
  }
  return Status::Ok();
}

}  // namespace

Status RunLargeAppends(const Config& config, const std::string& scratch, Report* report) {
  const Config work = WorkConfig(config);
  CAIRN_ASSIGN_OR_RETURN(const KvPool pool, MakePool(kPeerTokenBytes, config.source_bytes, 1));
  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw", config.peer_bytes / 2));
  CAIRN_ASSIGN_OR_RETURN(
      auto contest, Contest::Open(scratch, "appends",
                                  Budget(config, pool.model(), config.peer_bytes), kChunkTokens));
  contest->TellSettings("appends", report);
  // The beginning of an engine's life, above all the first touch of its buffers, is not timed.
  std::vector<std::unique_ptr<Grower>> growers;
  for (size_t i = 0; i < contest->size(); ++i) {
    growers.push_back(
        std::make_unique<Grower>(pool, FirstToken(pool, i), kChunkTokens, (*contest)[i]));
    CAIRN_RETURN_IF_ERROR(Grow(*growers[i], config.peer_bytes / (kChunkBytes)));
  }
  CAIRN_RETURN_IF_ERROR(MeasureBurst(work, pool, *raw_file, *contest, growers, report));
  CAIRN_RETURN_IF_ERROR(MeasureThreads(work, pool, *contest, report));
  CAIRN_RETURN_IF_ERROR(MeasureSustained(work, *contest, growers, report));
  return contest->CloseAll();
}

// One token of 8 KiB, durable.
Status RunSmallAppends(const Config& config, const std::string& scratch, Report* report) {
  const Config work = WorkConfig(config);
  CAIRN_ASSIGN_OR_RETURN(const KvPool pool, MakePool(kSmallTokenBytes, config.source_bytes, 1));
  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw_small", 16 << 20));
  CAIRN_ASSIGN_OR_RETURN(
      auto contest, Contest::Open(scratch, "small", Budget(config, pool.model(), config.peer_bytes),
                                  /*tokens=*/1));
  contest->TellSettings("small", report);
  std::vector<std::unique_ptr<Grower>> growers;
  Arms arms;
  for (size_t i = 0; i < contest->size(); ++i) {
    growers.push_back(std::make_unique<Grower>(pool, FirstToken(pool, i), 1, (*contest)[i]));
    Arm& arm = arms.Add(*contest, i, kSmallTokenBytes);
    arm.max_ops_per_block = kSmallOpsPerBlock;
    arm.prepare = [grower = growers[i].get()] {
      grower->Prepare();
      return Status::Ok();
    };
    arm.op = [grower = growers[i].get()](double*) { return grower->Append(/*durable=*/true); };
  }
  auto raws = RawAppenders(*raw_file, pool, 1);
  std::vector<Arm*> all = arms.all();
  for (auto& raw : raws) {
    raw->arm().max_ops_per_block = kSmallOpsPerBlock;
    all.push_back(&raw->arm());
  }
  CAIRN_RETURN_IF_ERROR(RunInterleaved(work, "small", all));
  arms.ReportP50("small", "small_p50_to_best_peer", report);
  const Arm* raw = &raws[0]->arm();
  for (auto& other : raws) raw = other->arm().p50_us() < raw->p50_us() ? &other->arm() : raw;
  report->Value("small_p50_us_raw", raw->p50_us(), "gathered and written, nothing else");
  report->AddRatio("small_p50_to_raw", RatioOfP50(arms[0], *raw), "lower is better");
  return contest->CloseAll();
}

}  // namespace cairn::bench
