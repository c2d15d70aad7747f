// SPDX-License-Identifier: Apache-2.0
//
// Shared by the works of `peers`: the engines of one work, their arms, their memory, and the sizes
// that follow from --bytes.
#pragma once

#include <algorithm>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "tools/bench/machine.h"
#include "tools/bench/peers/session_kv.h"

namespace cairn::bench {

inline constexpr uint64_t kPeerTokenBytes = 128 << 10;
inline constexpr uint64_t kChunkTokens = 16;  // 2 MiB.
inline constexpr uint64_t kChunkBytes = kChunkTokens * kPeerTokenBytes;
inline constexpr uint64_t kSmallTokenBytes = 8 << 10;
inline constexpr uint64_t kSmallOpsPerBlock = 256;
inline constexpr uint64_t kMinHotBytes = 32 << 20;  // However small --bytes is.
inline constexpr uint32_t kSpareSegments = 4;       // So that a run can outlast them.

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

  // Closes the engine, drops its files from the page cache, and opens it again. It is reopened once
  // before, since some engines write their log to tables when they open, and that would leave new
  // data in memory.
  Status MakeCold(Contender& contender) {
    CAIRN_RETURN_IF_ERROR(contender.peer->Close());
    CAIRN_RETURN_IF_ERROR(contender.peer->Reopen());
    CAIRN_RETURN_IF_ERROR(contender.peer->Settle());
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
    ReportCosts(work, report);
    const Arm& best = Best([](const Arm& a, const Arm& b) { return a.gb_per_s() > b.gb_per_s(); });
    report->Text(work + "_best_peer", best.name, "by that");
    report->AddRatio(work + "_to_best_peer", RatioOfBytes(arms_[0], best), "higher is better");
  }

  void ReportP50(const std::string& work, const std::string& ratio, Report* report) {
    for (const Arm& arm : arms_) {
      report->Value(work + "_p50_us_" + arm.name, arm.p50_us(), "one operation");
      report->Value(work + "_p99_us_" + arm.name, Quantile(arm.op_us, 0.99), "the same, slow end");
    }
    ReportCosts(work, report);
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
  // Measures the whole process in the blocks of each arm, opening included where a block opens.
  void ReportCosts(const std::string& work, Report* report) {
    for (const Arm& arm : arms_) {
      report->Value(work + "_cpu_s_per_gb_" + arm.name, arm.cpu_s_per_gb(), "CPU in its blocks");
      report->Value(work + "_faults_per_gb_" + arm.name, arm.faults_per_gb(),
                    "minor page faults in its blocks");
    }
  }

  template <typename Better>
  const Arm& Best(Better better) const {
    return *std::min_element(arms_.begin() + 1, arms_.end(), better);
  }
  std::deque<Arm> arms_{};  // Addresses stay.
};

inline Config WorkConfig(const Config& config) {
  Config work = config;
  work.rounds = config.peer_rounds;
  work.seconds = config.peer_seconds;
  return work;
}

inline PeerOptions Budget(const Config& config, const ModelSpec& model, uint64_t hot_bytes) {
  PeerOptions options;
  options.model = model;
  options.hot_bytes = std::max(hot_bytes, kMinHotBytes);
  options.cache_bytes = std::max(4 * config.peer_bytes, 2 * options.hot_bytes);
  options.cache_bytes = std::max(options.cache_bytes, 4 * kMinHotBytes);
  options.segment_bytes = config.segment_bytes;
  options.spare_segments = kSpareSegments;
  return options;
}

inline Result<KvPool> MakePool(uint64_t token_bytes, uint64_t bytes, uint64_t seed) {
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec model, ModelOfTokenBytes(token_bytes));
  return KvPool(model, Layout::kNhd, bytes / token_bytes / kTokensPerBlock * kTokensPerBlock, seed);
}

inline uint64_t PerBlock(uint64_t total, uint64_t each, uint32_t rounds) {
  return std::max<uint64_t>(1, total / each / rounds);
}

// Each contender reads its own, moving part of the pool.
inline uint64_t FirstToken(const KvPool& pool, size_t contender) {
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

inline Status Grow(Grower& grower, uint64_t chunks) {
  for (uint64_t i = 0; i < chunks; ++i) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    grower.Prepare();
    CAIRN_RETURN_IF_ERROR(grower.Append(/*durable=*/true));
  }
  return Status::Ok();
}

// The works, in the order in which they run.
Status RunLargeAppends(const Config& config, const std::string& scratch, Report* report);
Status RunLongAppends(const Config& config, const std::string& scratch, Report* report);
Status RunSmallAppends(const Config& config, const std::string& scratch, Report* report);
Status RunLargeSessions(const Config& config, const std::string& scratch, Report* report);
Status RunSmallSessions(const Config& config, const std::string& scratch, Report* report);

}  // namespace cairn::bench
