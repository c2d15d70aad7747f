// SPDX-License-Identifier: Apache-2.0
//
// Sessions: a large one restored warm and cold and branched off; many small ones loaded and
// restored.

#include <random>

#include "tools/bench/peers/contest.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kSmallTurns = 4;        // Appends of one token to a small session...
constexpr uint64_t kSessionsPerLoad = 64;  // ...round-robin with this many others.

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
      Arm& arm = arms.Add(contest_, i, kChunkBytes);
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
    Arm& arm = arms.Add(contest_, i, chunks_ * kChunkBytes);
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

}  // namespace

Status RunLargeSessions(const Config& config, const std::string& scratch, Report* report) {
  const uint64_t chunks = std::max<uint64_t>(2, config.peer_bytes / (kChunkBytes));
  const uint64_t bytes = chunks * kChunkBytes;
  CAIRN_ASSIGN_OR_RETURN(const KvPool source, MakePool(kPeerTokenBytes, bytes, 1));
  CAIRN_ASSIGN_OR_RETURN(const KvPool target, MakePool(kPeerTokenBytes, bytes, 2));
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
  const Config work = WorkConfig(config);
  const uint64_t session_bytes = kSmallTurns * kSmallTokenBytes;
  const uint64_t loads =
      std::max<uint64_t>(1, config.peer_bytes / 4 / session_bytes / kSessionsPerLoad);
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

  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw_sessions",
                                                        kSessionsPerLoad * session_bytes * loads));
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

}  // namespace cairn::bench
