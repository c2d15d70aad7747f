// SPDX-License-Identifier: Apache-2.0
//
// peers: the same work on Cairn and on what a user would take instead, in one run, by alternating
// blocks, at equal durability and with equal cache budgets. Every setting is in the report.

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "base/core/check.h"
#include "tools/bench/machine.h"
#include "tools/bench/peers/session_kv.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kTokenBytes = 128 << 10;
constexpr uint64_t kChunkTokens = 16;       // 2 MiB.
constexpr uint64_t kThreadChunkTokens = 8;  // 1 MiB, by each of...
constexpr uint64_t kThreads = 8;
constexpr uint64_t kSmallTokenBytes = 8 << 10;
constexpr uint64_t kSmallTurns = 4;        // Appends of one token to a small session...
constexpr uint64_t kSessionsPerLoad = 64;  // ...by turns with so many others.
constexpr uint64_t kSmallOpsPerBlock = 256;
constexpr uint64_t kMinHotBytes = 32 << 20;  // However small --bytes is.
constexpr uint32_t kSpareSegments = 4;
constexpr uint32_t kSustainedRounds = 2;

// One engine in one work. Sessions are numbered from 1 on.
struct Contender {
  std::string name{};
  std::unique_ptr<Peer> peer{};
  std::string path{};
  AlignedBuffer scratch{};
  SessionId sessions = 0;  // Used so far.
};

// The engines of one work; removes what they wrote.
class Contest {
 public:
  static Result<std::unique_ptr<Contest>> Open(const std::string& scratch, const std::string& work,
                                               PeerOptions options, uint64_t chunk_tokens) {
    auto contest = std::unique_ptr<Contest>(new Contest(scratch + "/" + work));
    std::filesystem::create_directories(contest->path_);
    for (const PeerKind& kind : PeerKinds()) {
      if (kind.open == nullptr) continue;
      auto contender = std::make_unique<Contender>();
      contender->name = kind.name;
      contender->path = contest->path_ + "/" + kind.name;
      contender->scratch = MakeScratch(options.model, chunk_tokens);
      options.path = contender->path;
      auto peer = kind.open(options);
      CAIRN_RETURN_IF_ERROR(peer.status().WithContext(kind.name));
      contender->peer = std::move(*peer);
      contest->contenders_.push_back(std::move(contender));
    }
    return contest;
  }
  Contest(const Contest&) = delete;
  Contest& operator=(const Contest&) = delete;
  ~Contest() {
    contenders_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  size_t size() const { return contenders_.size(); }
  Contender& operator[](size_t i) { return *contenders_[i]; }

  Status SettleAll() {
    for (const auto& contender : contenders_) {
      CAIRN_RETURN_IF_ERROR(contender->peer->Settle().WithContext(contender->name));
    }
    return Status::Ok();
  }

  // Closes one, has its files forgotten, and opens it again.
  Status MakeCold(Contender& contender) {
    CAIRN_RETURN_IF_ERROR(contender.peer->Close());
    DropFileCaches(contender.path);
    CAIRN_RETURN_IF_ERROR(contender.peer->Reopen());
    return SettleAll();
  }

  Status CloseAll() {
    for (const auto& contender : contenders_) {
      CAIRN_RETURN_IF_ERROR(contender->peer->Close().WithContext(contender->name));
    }
    return Status::Ok();
  }

  void TellSettings(const std::string& work, Report* report) const {
    nlohmann::json settings;
    for (const auto& contender : contenders_) {
      settings[contender->name] = contender->peer->Settings();
    }
    report->Machine("settings_" + work, settings);
  }

 private:
  explicit Contest(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  std::vector<std::unique_ptr<Contender>> contenders_{};
};

// Arms in the order of the contenders, so Cairn's is the first.
class Arms {
 public:
  Arm& Add(Contest& contest, size_t contender, uint64_t bytes_per_op) {
    Arm& arm = arms_.emplace_back();
    arm.name = contest[contender].name;
    arm.bytes_per_op = bytes_per_op;
    arm.before_block = [&contest] { return contest.SettleAll(); };
    return arm;
  }
  Arm& operator[](size_t i) { return arms_[i]; }
  std::vector<Arm*> all() {
    std::vector<Arm*> all;
    for (Arm& arm : arms_) all.push_back(&arm);
    return all;
  }

  void ReportRates(const std::string& work, Report* report) {
    for (const Arm& arm : arms_) {
      report->Value(work + "_gb_per_s_" + arm.name, arm.gb_per_s(), "KV, 10^9 bytes a second");
    }
    const Arm& best = Best([](const Arm& a, const Arm& b) { return a.gb_per_s() > b.gb_per_s(); });
    report->Text(work + "_best_peer", best.name, "by that");
    report->AddRatio(work + "_to_best_peer", RatioOfBytes(arms_[0], best), "higher is better");
  }

  void ReportP50(const std::string& work, const std::string& ratio, Report* report) {
    for (const Arm& arm : arms_) {
      report->Value(work + "_p50_us_" + arm.name, arm.p50_us(), "one operation");
      report->Value(work + "_p99_us_" + arm.name, Quantile(arm.op_us, 0.99), "the same, slow end");
    }
    const Arm& best = Best([](const Arm& a, const Arm& b) { return a.p50_us() < b.p50_us(); });
    report->Text(work + "_best_peer", best.name, "by p50");
    report->AddRatio(ratio, RatioOfP50(arms_[0], best), "lower is better");
  }

  const Arm* Find(const std::string& name) const {
    for (const Arm& arm : arms_) {
      if (arm.name == name) return &arm;
    }
    return nullptr;
  }

 private:
  template <typename Better>
  const Arm& Best(Better better) const {
    return *std::min_element(arms_.begin() + 1, arms_.end(), better);
  }
  std::deque<Arm> arms_{};  // Addresses stay.
};

// Sizes that follow from --bytes.
struct Sizes {
  explicit Sizes(const Config& config)
      : hot(config.peer_bytes),
        burst(config.peer_bytes / 2),
        threads(config.peer_bytes / 2),
        sustained_block(config.peer_bytes / 8 * 9),
        session(config.peer_bytes),
        small_sessions(config.peer_bytes / 4 / (kSmallTurns * kSmallTokenBytes)) {}
  uint64_t hot, burst, threads, sustained_block, session, small_sessions;
};

Config WorkConfig(const Config& config) {
  Config work = config;
  work.rounds = config.peer_rounds;
  work.seconds = config.peer_seconds;
  return work;
}

PeerOptions Budget(const Config& config, const ModelSpec& model, uint64_t hot_bytes) {
  PeerOptions options;
  options.model = model;
  options.hot_bytes = std::max(hot_bytes, kMinHotBytes);
  options.cache_bytes = std::max(4 * config.peer_bytes, 4 * kMinHotBytes);
  options.segment_bytes = config.segment_bytes;
  options.spare_segments = kSpareSegments;
  return options;
}

Result<KvPool> MakePool(uint64_t token_bytes, uint64_t bytes, uint64_t seed) {
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec model, ModelOfTokenBytes(token_bytes));
  return KvPool(model, Layout::kNhd, bytes / token_bytes / kTokensPerBlock * kTokensPerBlock, seed);
}

uint64_t PerBlock(uint64_t total, uint64_t each, uint32_t rounds) {
  return std::max<uint64_t>(1, total / each / rounds);
}

// Each contender reads its own, moving part of the pool.
uint64_t FirstToken(const KvPool& pool, size_t contender) {
  return pool.tokens() / 8 * contender / kTokensPerBlock * kTokensPerBlock;
}

// A session that grows chunk by chunk.
struct Grower {
  Grower(const KvPool& pool, uint64_t first_token, uint64_t chunk_tokens, Contender& contender)
      : peer(*contender.peer),
        kv(pool, first_token, chunk_tokens, ++contender.sessions, contender.scratch.span()) {}
  void Prepare() { chunk = &kv.At(next++); }
  Status Append(bool durable) { return peer.Append(*chunk, durable); }

  Peer& peer;
  SessionKv kv;
  const Chunk* chunk = nullptr;
  uint64_t next = 0;
};

Status Grow(Grower& grower, uint64_t chunks) {
  for (uint64_t i = 0; i < chunks; ++i) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    grower.Prepare();
    CAIRN_RETURN_IF_ERROR(grower.Append(/*durable=*/true));
  }
  return Status::Ok();
}

Status MeasureBurst(const Config& work, const Sizes& sizes, const KvPool& pool, RawFile& raw_file,
                    Contest& contest, std::vector<std::unique_ptr<Grower>>& growers,
                    Report* report) {
  const uint64_t chunk_bytes = kChunkTokens * kTokenBytes;
  const uint64_t per_block = PerBlock(sizes.burst, chunk_bytes, work.rounds);
  Arms arms;
  for (size_t i = 0; i < contest.size(); ++i) {
    Arm& arm = arms.Add(contest, i, chunk_bytes);
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
    report->Value("burst_cpu_s_per_gb_" + arms[i].name, arms[i].cpu_s_per_gb(),
                  "CPU of the process in its blocks");
  }
  report->Value("burst_gb_per_s_raw", raw.gb_per_s(), "gathered and written, nothing else");
  report->Value("cpu_s_per_gb_above_raw", arms[0].cpu_s_per_gb() - raw.cpu_s_per_gb(),
                "Cairn's CPU a GB appended, less that of gathering and writing");
  report->AddRatio("burst_to_raw", RatioOfBytes(arms[0], raw), "higher is better");
  return Status::Ok();
}

// Every thread appends to a session of its own.
Status MeasureThreads(const Config& work, const Sizes& sizes, const KvPool& pool, Contest& contest,
                      Report* report) {
  constexpr uint64_t kAppendsPerOp = 2;  // Of each thread.
  const uint64_t op_bytes = kThreads * kAppendsPerOp * kThreadChunkTokens * kTokenBytes;
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
    arm.max_ops_per_block = PerBlock(sizes.threads, op_bytes, work.rounds);
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

// Blocks longer than the pool of pre-written segments, memtables and caches can hide.
Status MeasureSustained(Config work, const Sizes& sizes, Contest& contest,
                        std::vector<std::unique_ptr<Grower>>& growers, Report* report) {
  const uint64_t chunk_bytes = kChunkTokens * kTokenBytes;
  Arms arms;
  for (size_t i = 0; i < contest.size(); ++i) {
    Arm& arm = arms.Add(contest, i, chunk_bytes);
    arm.max_ops_per_block = PerBlock(sizes.sustained_block, chunk_bytes, 1);
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

Status RunLargeAppends(const Config& config, const std::string& scratch, Report* report) {
  const Sizes sizes(config);
  const Config work = WorkConfig(config);
  CAIRN_ASSIGN_OR_RETURN(const KvPool pool, MakePool(kTokenBytes, config.source_bytes, 1));
  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw", sizes.burst));
  CAIRN_ASSIGN_OR_RETURN(
      auto contest,
      Contest::Open(scratch, "appends", Budget(config, pool.model(), sizes.hot), kChunkTokens));
  contest->TellSettings("appends", report);
  // What comes first in an engine's life, the first touch of its buffers above all, is not timed.
  std::vector<std::unique_ptr<Grower>> growers;
  for (size_t i = 0; i < contest->size(); ++i) {
    growers.push_back(
        std::make_unique<Grower>(pool, FirstToken(pool, i), kChunkTokens, (*contest)[i]));
    CAIRN_RETURN_IF_ERROR(Grow(*growers[i], sizes.hot / (kChunkTokens * kTokenBytes)));
  }
  CAIRN_RETURN_IF_ERROR(MeasureBurst(work, sizes, pool, *raw_file, *contest, growers, report));
  CAIRN_RETURN_IF_ERROR(MeasureThreads(work, sizes, pool, *contest, report));
  CAIRN_RETURN_IF_ERROR(MeasureSustained(work, sizes, *contest, growers, report));
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

// One session per contender, brought back warm and cold, and branched off in the middle.
class SessionWork {
 public:
  SessionWork(const Config& config, const KvPool& source, const KvPool& target, Contest& contest,
              uint64_t chunks)
      : work_(WorkConfig(config)), source_(source), contest_(contest), chunks_(chunks) {
    for (size_t i = 0; i < contest.size(); ++i) {
      sources_.push_back(std::make_unique<Grower>(source, 0, kChunkTokens, contest[i]));
      targets_.push_back(std::make_unique<SessionKv>(target, 0, kChunkTokens, contest[i].sessions,
                                                     contest[i].scratch.span()));
      wholes_.push_back(&targets_[i]->Whole(chunks));
    }
  }

  Status Load() {
    for (auto& source : sources_) CAIRN_RETURN_IF_ERROR(Grow(*source, chunks_));
    return contest_.SettleAll();
  }

  Status Warm(Report* report) {
    for (size_t i = 0; i < contest_.size(); ++i) CAIRN_RETURN_IF_ERROR(RestoreAndCheck(i));
    Arms arms;
    for (size_t i = 0; i < contest_.size(); ++i) AddRestore(arms, i);
    CAIRN_RETURN_IF_ERROR(RunInterleaved(work_, "warm restore", arms.all()));
    arms.ReportRates("warm_restore", report);
    if (const Arm* lmdb = arms.Find("lmdb"); lmdb != nullptr) {
      report->AddRatio("warm_restore_to_lmdb", RatioOfBytes(arms[0], *lmdb), "higher is better");
    }
    return Status::Ok();
  }

  Status Cold(Report* report) {
    for (size_t i = 0; i < contest_.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(contest_.MakeCold(contest_[i]));
      CAIRN_RETURN_IF_ERROR(RestoreAndCheck(i));
    }
    Arms arms;
    for (size_t i = 0; i < contest_.size(); ++i) {
      Arm& arm = AddRestore(arms, i);
      arm.max_ops_per_block = 1;
      arm.before_block = [this, i] { return contest_.MakeCold(contest_[i]); };
    }
    CAIRN_RETURN_IF_ERROR(RunInterleaved(work_, "cold restore", arms.all()));
    arms.ReportRates("cold_restore", report);
    for (size_t i = 0; i < contest_.size(); ++i) {
      report->Value("cold_restore_cpu_s_per_gb_" + arms[i].name, arms[i].cpu_s_per_gb(),
                    "CPU of the process in its blocks, opening included");
    }
    return Status::Ok();
  }

  // Fork in the middle and append 2 MiB durably, over and over.
  Status Branch(Report* report) {
    const uint64_t at = chunks_ / 2;
    constexpr uint64_t kBranchesPerBlock = 16;
    std::vector<std::unique_ptr<SessionKv>> forks(contest_.size());
    std::vector<const Chunk*> next(contest_.size());
    Arms arms;
    for (size_t i = 0; i < contest_.size(); ++i) {
      Arm& arm = arms.Add(contest_, i, kChunkTokens * kTokenBytes);
      arm.max_ops_per_block = std::min(kBranchesPerBlock, std::max<uint64_t>(1, at));
      arm.prepare = [&, i] {
        forks[i] = std::make_unique<SessionKv>(source_, 0, kChunkTokens, ++contest_[i].sessions,
                                               contest_[i].scratch.span());
        next[i] = &forks[i]->At(at);
        return Status::Ok();
      };
      arm.op = [&, i](double*) {
        Peer& peer = *contest_[i].peer;
        CAIRN_RETURN_IF_ERROR(
            peer.Fork(wholes_[i]->session, at, kChunkTokens, contest_[i].sessions));
        return peer.Append(*next[i], /*durable=*/true);
      };
    }
    CAIRN_RETURN_IF_ERROR(RunInterleaved(work_, "branches", arms.all()));
    arms.ReportP50("branch_append", "branch_append_to_best_peer", report);
    for (size_t i = 0; i < contest_.size(); ++i) {  // The newest fork, its own chunk too.
      RestoreTarget fork = *wholes_[i];
      fork.session = contest_[i].sessions;
      fork.chunks = fork.chunks.first(at + 1);
      fork.ids = fork.ids.first((at + 1) * kChunkTokens);
      CAIRN_RETURN_IF_ERROR(contest_[i].peer->Restore(fork).WithContext(contest_[i].name));
      CAIRN_RETURN_IF_ERROR(targets_[i]->CheckRestored(sources_[i]->kv, at + 1));
    }
    return Status::Ok();
  }

 private:
  Arm& AddRestore(Arms& arms, size_t i) {
    Arm& arm = arms.Add(contest_, i, chunks_ * kChunkTokens * kTokenBytes);
    arm.op = [this, i](double*) { return contest_[i].peer->Restore(*wholes_[i]); };
    return arm;
  }

  Status RestoreAndCheck(size_t i) {
    std::fill(wholes_[i]->ids.begin(), wholes_[i]->ids.end(), 0);
    CAIRN_RETURN_IF_ERROR(contest_[i].peer->Restore(*wholes_[i]).WithContext(contest_[i].name));
    return targets_[i]->CheckRestored(sources_[i]->kv, chunks_).WithContext(contest_[i].name);
  }

  const Config work_;
  const KvPool& source_;
  Contest& contest_;
  const uint64_t chunks_;
  std::vector<std::unique_ptr<Grower>> sources_{};
  std::vector<std::unique_ptr<SessionKv>> targets_{};
  std::vector<const RestoreTarget*> wholes_{};
};

Status RunSessions(const Config& config, const std::string& scratch, Report* report) {
  const uint64_t chunks = std::max<uint64_t>(2, config.peer_bytes / (kChunkTokens * kTokenBytes));
  const uint64_t bytes = chunks * kChunkTokens * kTokenBytes;
  CAIRN_ASSIGN_OR_RETURN(const KvPool source, MakePool(kTokenBytes, bytes, 1));
  CAIRN_ASSIGN_OR_RETURN(const KvPool target, MakePool(kTokenBytes, bytes, 2));
  // All of the session is to be had from memory: room for it, and for what lies around it.
  const PeerOptions budget = Budget(config, source.model(), bytes / 4 * 5 + config.segment_bytes);
  CAIRN_ASSIGN_OR_RETURN(auto contest, Contest::Open(scratch, "sessions", budget, kChunkTokens));
  contest->TellSettings("sessions", report);
  SessionWork work(config, source, target, *contest, chunks);
  CAIRN_RETURN_IF_ERROR(work.Load());
  CAIRN_RETURN_IF_ERROR(work.Warm(report));
  CAIRN_RETURN_IF_ERROR(work.Branch(report));
  CAIRN_RETURN_IF_ERROR(work.Cold(report));
  return contest->CloseAll();
}

// Many small sessions, written by turns and synced at the end of each load, then read one by one.
Status RunSmallSessions(const Config& config, const std::string& scratch, Report* report) {
  const Sizes sizes(config);
  const Config work = WorkConfig(config);
  const uint64_t session_bytes = kSmallTurns * kSmallTokenBytes;
  const uint64_t loads = std::max<uint64_t>(1, sizes.small_sessions / kSessionsPerLoad);
  CAIRN_ASSIGN_OR_RETURN(const KvPool source, MakePool(kSmallTokenBytes, config.source_bytes, 1));
  CAIRN_ASSIGN_OR_RETURN(const KvPool target,
                         MakePool(kSmallTokenBytes, kTokensPerBlock * kSmallTokenBytes, 2));
  PeerOptions budget = Budget(config, source.model(), config.peer_bytes);
  budget.random_reads = true;
  CAIRN_ASSIGN_OR_RETURN(auto contest, Contest::Open(scratch, "small_sessions", budget, 1));
  contest->TellSettings("small_sessions", report);

  const auto memory_of = [&](size_t i, SessionId session) {
    return std::make_unique<SessionKv>(source, session * kTokensPerBlock % source.tokens(), 1,
                                       session, (*contest)[i].scratch.span());
  };
  std::vector<std::vector<std::unique_ptr<SessionKv>>> loading(contest->size());
  Arms arms;
  for (size_t i = 0; i < contest->size(); ++i) {
    Arm& arm = arms.Add(*contest, i, kSessionsPerLoad * session_bytes);
    arm.max_ops_per_block = PerBlock(loads, 1, work.rounds);
    arm.prepare = [&, i] {
      loading[i].clear();
      for (uint64_t s = 0; s < kSessionsPerLoad; ++s) {
        loading[i].push_back(memory_of(i, ++(*contest)[i].sessions));
      }
      return Status::Ok();
    };
    arm.op = [&, i](double*) {
      Peer& peer = *(*contest)[i].peer;
      for (uint64_t turn = 0; turn < kSmallTurns; ++turn) {
        for (auto& session : loading[i]) {
          CAIRN_RETURN_IF_ERROR(peer.Append(session->At(turn), /*durable=*/false));
        }
      }
      return peer.Sync();
    };
  }
  CAIRN_RETURN_IF_ERROR(RunInterleaved(work, "small sessions", arms.all()));
  arms.ReportRates("small_sessions", report);

  CAIRN_ASSIGN_OR_RETURN(auto raw_file,
                         RawFile::Create(scratch + "/raw_sessions", 64 * session_bytes * loads));
  std::mt19937_64 random(3);
  Arms reads;
  std::vector<std::unique_ptr<SessionKv>> targets(contest->size());
  std::vector<std::vector<SessionId>> order(contest->size());
  std::vector<const RestoreTarget*> next(contest->size());
  for (size_t i = 0; i < contest->size(); ++i) {
    for (SessionId s = 1; s <= (*contest)[i].sessions; ++s) order[i].push_back(s);
    Arm& arm = reads.Add(*contest, i, session_bytes);
    arm.max_ops_per_block = std::min<uint64_t>(kSmallOpsPerBlock / 4, order[i].size());
    arm.before_block = [&, i] {
      std::shuffle(order[i].begin(), order[i].end(), random);
      return contest->MakeCold((*contest)[i]);
    };
    // No session twice after one opening, as long as a block is shorter than the order.
    arm.prepare = [&, i] {
      std::rotate(order[i].begin(), order[i].begin() + 1, order[i].end());
      targets[i] =
          std::make_unique<SessionKv>(target, 0, 1, order[i].back(), (*contest)[i].scratch.span());
      next[i] = &targets[i]->Whole(kSmallTurns);
      return Status::Ok();
    };
    arm.op = [&, i](double*) { return (*contest)[i].peer->Restore(*next[i]); };
  }
  AlignedBuffer into = AlignedBuffer::TryAllocate(Allocator::Default(), session_bytes, 4096);
  if (into.empty()) return Status(StatusCode::kOutOfMemory, "32 KiB to read to");
  Arm raw{.name = "raw read", .bytes_per_op = session_bytes};
  raw.max_ops_per_block = reads[0].max_ops_per_block;
  uint64_t offset = 0;
  raw.prepare = [&] {
    offset = random() % (raw_file->bytes() / session_bytes) * session_bytes;
    return Status::Ok();
  };
  raw.op = [&](double*) { return raw_file->Read(offset, into.span()); };
  std::vector<Arm*> all = reads.all();
  all.push_back(&raw);
  CAIRN_RETURN_IF_ERROR(RunInterleaved(work, "small restores", all));
  for (size_t i = 0; i < contest->size(); ++i) {  // The last one of each is still in memory.
    auto wanted = memory_of(i, next[i]->session);
    CAIRN_RETURN_IF_ERROR((*contest)[i].peer->Restore(*next[i]));
    CAIRN_RETURN_IF_ERROR(
        targets[i]->CheckRestored(*wanted, kSmallTurns).WithContext((*contest)[i].name));
  }
  reads.ReportP50("small_restore", "small_restore_p50_to_best_peer", report);
  report->Value("small_restore_p50_us_raw", raw.p50_us(), "one O_DIRECT read of 32 KiB");
  report->AddRatio("small_restore_p50_to_raw", RatioOfP50(reads[0], raw), "lower is better");
  return contest->CloseAll();
}

}  // namespace

Status RunPeers(const Config& config, const std::string& scratch, Report* report) {
  nlohmann::json skipped = nlohmann::json::object();
  for (const PeerKind& kind : PeerKinds()) {
    if (kind.open != nullptr) continue;
    skipped[kind.name] = kind.why_absent;
    std::fprintf(stderr, "cairn-bench: peers: %s is skipped: %s\n", kind.name.c_str(),
                 kind.why_absent.c_str());
  }
  report->Machine("skipped", skipped);
  report->Machine("bytes", config.peer_bytes);
  CAIRN_RETURN_IF_ERROR(RunLargeAppends(config, scratch, report).WithContext("large appends"));
  CAIRN_RETURN_IF_ERROR(RunSmallAppends(config, scratch, report).WithContext("small appends"));
  CAIRN_RETURN_IF_ERROR(RunSessions(config, scratch, report).WithContext("sessions"));
  return RunSmallSessions(config, scratch, report).WithContext("small sessions");
}

}  // namespace cairn::bench
