// SPDX-License-Identifier: Apache-2.0
//
// restore-small: one of many small sessions brought back by a store that was just opened, out of
// the log and out of snapshot tables, beside one raw read of as many bytes; and once more, out of
// memory. The sessions grow by turns, so in the log each lies in several places.

#include <algorithm>
#include <cstring>
#include <random>

#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/machine.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kTokenBytes = 8 << 10;
constexpr uint64_t kSessionsByTurns = 64;
constexpr uint64_t kRestoresPerBlock = 64;

// A store with many small sessions.
class SmallSessions {
 public:
  SmallSessions(const Config& config, std::string path, const KvPool& source, const KvPool& target,
                uint64_t tokens, uint64_t sessions)
      : path_(std::move(path)), source_(source), target_(target), ids_(tokens), cursor_(target, 0) {
    options_.segment_bytes = config.segment_bytes;
    options_.log_bytes_max = UINT64_MAX;
    options_.snapshot_interval_tokens = options_.max_delta_chain = 0;
    order_.resize(sessions);
  }

  Status Write(bool sealed, Report* report) {
    CAIRN_ASSIGN_OR_RETURN(store_, OpenStore(path_, options_, report));
    CAIRN_ASSIGN_OR_RETURN(const ModelId model, store_.RegisterModel(source_.model()));
    for (uint64_t first = 0; first < order_.size(); first += kSessionsByTurns) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      const uint64_t end = std::min<uint64_t>(first + kSessionsByTurns, order_.size());
      std::vector<std::unique_ptr<Writer>> writers;
      for (uint64_t i = first; i < end; ++i) {
        CAIRN_ASSIGN_OR_RETURN(auto writer,
                               Writer::Create(store_, model, &source_, FirstToken(i), 1));
        order_[i] = {writer->branch().id(), i};
        writers.push_back(std::move(writer));
      }
      for (size_t turn = 0; turn < ids_.size(); ++turn) {
        for (auto& writer : writers) {
          CAIRN_RETURN_IF_ERROR(writer->Prepare());
          CAIRN_RETURN_IF_ERROR(writer->AppendSync(Durability::kMemory));
        }
      }
    }
    CAIRN_RETURN_IF_ERROR(store_.Flush());
    return sealed ? store_.Compact() : Status::Ok();
  }

  // Nothing is in its memory afterwards, and nothing in the system's.
  Status Reopen(Report* report) {
    CAIRN_RETURN_IF_ERROR(store_.Close());
    DropFileCaches(path_);
    CAIRN_ASSIGN_OR_RETURN(store_, OpenStore(path_, options_, report));
    CAIRN_RETURN_IF_ERROR(WaitForPool(store_, 0));
    std::shuffle(order_.begin(), order_.end(), random_);
    next_ = 0;
    return Status::Ok();
  }
  // Brings the first sessions into memory; they come next.
  Status Warm(uint64_t sessions) {
    for (uint64_t i = 0; i < sessions; ++i) {
      CAIRN_RETURN_IF_ERROR(Prepare());
      CAIRN_RETURN_IF_ERROR(Restore());
    }
    next_ = 0;
    return Status::Ok();
  }

  // The branch is known before its content is asked for, as one that is about to be resumed is.
  Status Prepare() {
    if (next_ == order_.size()) next_ = 0;
    CAIRN_ASSIGN_OR_RETURN(branch_, store_.GetBranch(order_[next_++].id));
    return Status::Ok();
  }
  Status Restore() {
    RestoreRequest request;
    request.end = ids_.size();
    request.tokens = ids_;
    request.into = &cursor_.At(0, ids_.size());
    CAIRN_ASSIGN_OR_RETURN(const RestoreResult result, branch_.Restore(request));
    CAIRN_CHECK(result.bytes == ids_.size() * kTokenBytes);
    return Status::Ok();
  }
  // That what was restored last is what was appended.
  Status Compare() {
    KvCursor wanted(source_, FirstToken(order_[next_ - 1].index));
    std::vector<Piece> want, got;
    const size_t row = source_.model().groups[0].planes[0].row_bytes;
    ListPieces(source_.model(), wanted.At(0, ids_.size()), &want, row);
    ListPieces(target_.model(), cursor_.At(0, ids_.size()), &got, row);
    CAIRN_CHECK(want.size() == got.size());
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::memcmp(want[i].data, got[i].data, row) != 0) {
        return Status(StatusCode::kCorruption, "a restored session differs from what was appended");
      }
    }
    return Status::Ok();
  }
  Status Close() { return store_.Close(); }
  StoreMetrics Metrics() { return store_.Metrics(); }

 private:
  struct Session {
    BranchId id{};
    uint64_t index = 0;
  };
  uint64_t FirstToken(uint64_t session) const {
    return session * kTokensPerBlock % (source_.tokens() - ids_.size()) / kTokensPerBlock *
           kTokensPerBlock;
  }

  const std::string path_;
  const KvPool& source_;
  const KvPool& target_;
  Options options_{};
  Store store_{};
  std::vector<Session> order_{};
  size_t next_ = 0;
  Branch branch_{};
  std::vector<TokenId> ids_;
  KvCursor cursor_;
  std::mt19937_64 random_{3};
};

}  // namespace

Status RunRestoreSmall(const Config& config, const std::string& scratch, Report* report) {
  const uint64_t wanted = config.session_bytes > 0 ? config.session_bytes : 32 << 10;
  const uint64_t tokens = std::max<uint64_t>(1, wanted / kTokenBytes);
  const uint64_t session_bytes = tokens * kTokenBytes;
  const uint64_t sessions = std::max(kSessionsByTurns, config.source_bytes / 2 / session_bytes);
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec model, ModelOfTokenBytes(kTokenBytes));
  CAIRN_ASSIGN_OR_RETURN(const Layout layout, ParseLayout(config.layout));
  const uint64_t blocks = (tokens + kTokensPerBlock - 1) / kTokensPerBlock;
  const KvPool source(
      model, layout,
      std::max(config.source_bytes / 8 / kTokenBytes / kTokensPerBlock, 2 * blocks) *
          kTokensPerBlock,
      /*seed=*/1);
  const KvPool target(model, layout, blocks * kTokensPerBlock, /*seed=*/2);

  SmallSessions log(config, scratch + "/log", source, target, tokens, sessions);
  SmallSessions sealed(config, scratch + "/sealed", source, target, tokens, sessions);
  CAIRN_RETURN_IF_ERROR(log.Write(/*sealed=*/false, report));
  CAIRN_RETURN_IF_ERROR(sealed.Write(/*sealed=*/true, report));
  CAIRN_ASSIGN_OR_RETURN(auto raw_file,
                         RawFile::Create(scratch + "/raw", sessions * session_bytes));

  const auto arm_of = [&](const char* name, SmallSessions& store, bool cold) {
    Arm arm{.name = name, .bytes_per_op = session_bytes};
    arm.max_ops_per_block = std::min(kRestoresPerBlock, sessions);
    arm.before_block = [&store, report, cold, count = arm.max_ops_per_block]() -> Status {
      CAIRN_RETURN_IF_ERROR(store.Reopen(report));
      return cold ? Status::Ok() : store.Warm(count);
    };
    arm.prepare = [&store] { return store.Prepare(); };
    arm.op = [&store](double*) { return store.Restore(); };
    return arm;
  };
  Arm from_log = arm_of("log", log, true);
  Arm from_tables = arm_of("tables", sealed, true);
  Arm from_memory = arm_of("memory", sealed, false);
  AlignedBuffer into = AlignedBuffer::TryAllocate(Allocator::Default(), session_bytes, 4096);
  if (into.empty()) return Status(StatusCode::kOutOfMemory, "memory to read to");
  std::mt19937_64 random(4);
  uint64_t offset = 0;
  Arm raw{.name = "raw read", .bytes_per_op = session_bytes};
  raw.max_ops_per_block = kRestoresPerBlock;
  raw.prepare = [&] {
    offset = random() % sessions * session_bytes;
    return Status::Ok();
  };
  raw.op = [&](double*) { return raw_file->Read(offset, into.span()); };
  CAIRN_RETURN_IF_ERROR(
      RunInterleaved(config, "restore-small", {&from_log, &from_tables, &from_memory, &raw}));
  for (SmallSessions* store : {&log, &sealed}) {
    CAIRN_RETURN_IF_ERROR(store->Prepare());
    CAIRN_RETURN_IF_ERROR(store->Restore());
    CAIRN_RETURN_IF_ERROR(store->Compare());
  }

  report->Value("session_kib", static_cast<double>(session_bytes) / 1024, "KV of a session");
  report->Value("sessions", static_cast<double>(sessions), "in each store");
  const std::pair<const char*, const Arm*> arms[] = {
      {"log", &from_log}, {"tables", &from_tables}, {"memory", &from_memory}, {"raw", &raw}};
  for (const auto& [name, arm] : arms) {
    report->Value(std::string(name) + "_p50_us", arm->p50_us(), "one session");
    report->Value(std::string(name) + "_p95_us", Quantile(arm->op_us, 0.95), "the slow end");
  }
  report->AddRatio("log_p50_to_raw", RatioOfP50(from_log, raw), "lower is better");
  report->AddRatio("tables_p50_to_raw", RatioOfP50(from_tables, raw), "lower is better");
  report->AddRatio("memory_p50_to_raw", RatioOfP50(from_memory, raw), "lower is better");
  CAIRN_RETURN_IF_ERROR(log.Close());
  return sealed.Close();
}

}  // namespace cairn::bench
