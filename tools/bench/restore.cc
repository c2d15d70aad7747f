// SPDX-License-Identifier: Apache-2.0
//
// restore-cold and restore-warm: a whole session brought back into paged memory, beside a raw read
// of as many bytes, and beside memcpy. The first restore is compared with the source byte by byte.
// The same session again, its quarters in another order and their keys turned to their new
// positions (engine/restore/plan/key_turns.h).

#include <algorithm>
#include <array>
#include <cstring>

#include "base/core/check.h"
#include "engine/store/store_core.h"
#include "tools/bench/fixture.h"
#include "tools/bench/machine.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kTokenBytes = 128 << 10;
constexpr uint64_t kTokensPerAppend = 16;

// A session of `tokens` tokens in a store, its source, and memory to restore it to.
class Session {
 public:
  static Result<std::unique_ptr<Session>> Create(const Config& config, uint64_t bytes) {
    CAIRN_ASSIGN_OR_RETURN(ModelSpec spec, ModelOfTokenBytes(kTokenBytes));
    LayerGroup& group = spec.groups[0];
    group.planes[0].rotary.pairing = RotaryPairing::kHalves;
    group.inv_freq =
        RotaryFrequencies(group.planes[0].row_bytes / DtypeBytes(group.planes[0].dtype), 500'000.0);
    CAIRN_ASSIGN_OR_RETURN(const Layout layout, ParseLayout(config.layout));
    const uint64_t tokens =
        std::max(bytes / kTokenBytes, kTokensPerAppend) / kTokensPerAppend * kTokensPerAppend;
    return std::unique_ptr<Session>(new Session(spec, layout, tokens, config.source_bytes));
  }

  uint64_t tokens() const { return ids_.size(); }
  uint64_t bytes() const { return tokens() * kTokenBytes; }
  const KvPool& source() const { return source_; }
  const KvPool& target() const { return target_; }

  Status Write(Store& store, BranchId* id) {
    CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(source_.model()));
    CAIRN_ASSIGN_OR_RETURN(auto writer,
                           Writer::Create(store, model, &source_, 0, kTokensPerAppend));
    Progress progress("writing the session", tokens() / kTokensPerAppend);
    while (writer->length() < tokens()) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      CAIRN_RETURN_IF_ERROR(writer->Prepare());
      CAIRN_RETURN_IF_ERROR(writer->AppendSync(Durability::kProcess));
      progress.Step();
    }
    *id = writer->branch().id();
    return store.Flush();
  }

  Status Restore(const Branch& branch) {
    RestoreRequest request;
    request.end = tokens();
    request.tokens = ids_;
    request.into = &target_cursor_.At(0, tokens());
    CAIRN_ASSIGN_OR_RETURN(const RestoreResult result, branch.Restore(request));
    restored_bytes_ += result.bytes;
    hot_bytes_ += result.hot_bytes;
    CAIRN_CHECK(result.bytes == bytes() && result.end == tokens());
    return checked_ ? Status::Ok() : Compare();
  }

  // Its quarters, each where the one before was.
  Status RestoreMoved(const Branch& branch) {
    const uint64_t quarter = tokens() / 4;
    engine::RestoreItem item;
    for (uint64_t i = 0; i < 4; ++i) {
      const uint64_t begin = i * quarter;
      const auto to = static_cast<int64_t>((i + 1) % 4 * quarter);
      item.sources.push_back({.branch = branch.id(),
                              .begin = begin,
                              .end = begin + quarter,
                              .shift = to - static_cast<int64_t>(begin)});
    }
    item.request.into = &target_cursor_.At(0, tokens());
    CAIRN_RETURN_IF_ERROR(branch.core()->reads().RestoreMany({&item, 1}, UINT64_MAX));
    CAIRN_RETURN_IF_ERROR(item.status);
    CAIRN_CHECK(item.result.bytes == 4 * quarter * kTokenBytes);
    return Status::Ok();
  }

  // The part of the bytes of all restores that came from the store's memory.
  double hot_fraction() const {
    return static_cast<double>(hot_bytes_) / static_cast<double>(restored_bytes_);
  }

 private:
  Session(const ModelSpec& spec, Layout layout, uint64_t tokens, uint64_t source_bytes)
      : source_(
            spec, layout,
            std::min(tokens, std::max(source_bytes / kTokenBytes / kTokensPerBlock, uint64_t{1}) *
                                 kTokensPerBlock),
            /*seed=*/1),
        target_(spec, layout, tokens, /*seed=*/2),
        source_cursor_(source_, 0),
        target_cursor_(target_, 0),
        ids_(tokens) {}

  Status Compare() {
    checked_ = true;
    std::vector<Piece> want, got;
    const size_t row = source_.model().groups[0].planes[0].row_bytes;
    ListPieces(source_.model(), source_cursor_.At(0, tokens()), &want, row);
    ListPieces(target_.model(), target_cursor_.At(0, tokens()), &got, row);
    CAIRN_CHECK(want.size() == got.size());
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::memcmp(want[i].data, got[i].data, row) != 0) {
        return Status(StatusCode::kCorruption,
                      "restored row " + std::to_string(i) + " differs from what was appended");
      }
    }
    for (uint64_t i = 0; i < tokens(); ++i) {
      if (ids_[i] != TokenAt(i)) {
        return Status(StatusCode::kCorruption, "restored token " + std::to_string(i) + " differs");
      }
    }
    return Status::Ok();
  }

  KvPool source_, target_;
  KvCursor source_cursor_, target_cursor_;
  std::vector<TokenId> ids_;
  bool checked_ = false;
  uint64_t restored_bytes_ = 0, hot_bytes_ = 0;
};

void ReportRestore(const Arm& ours, const Session& session, Report* report) {
  report->Value("restore_ms", ours.p50_us() * 1e-3, "p50 of a whole session");
  report->Value("session_mib", static_cast<double>(session.bytes() >> 20), "KV restored");
  report->Value("gb_per_s", ours.gb_per_s(), "logical bytes, 10^9 a second");
  report->Value("hot_fraction", session.hot_fraction(), "served from the store's memory");
  report->Value("cpu_s_per_gb", ours.cpu_s_per_gb(), "CPU of the process");
}

void ReportMoved(const Arm& ours, const Arm& moved, Report* report) {
  report->Value("moved_gb_per_s", moved.gb_per_s(), "four sources, keys turned to new positions");
  report->Value("moved_cpu_s_per_gb", moved.cpu_s_per_gb(), "CPU of the process");
  report->AddRatio("moved_to_restore", RatioOfBytes(moved, ours), "higher is better");
}

}  // namespace

Status RunRestoreCold(const Config& config, const std::string& scratch, Report* report) {
  const uint64_t wanted = config.session_bytes > 0 ? config.session_bytes : 1ull << 30;
  CAIRN_ASSIGN_OR_RETURN(auto session, Session::Create(config, wanted));
  const std::string path = scratch + "/store";
  Options options;
  options.segment_bytes = config.segment_bytes;
  options.log_bytes_max = UINT64_MAX;  // Out of the chain of deltas.
  options.snapshot_interval_tokens = options.max_delta_chain = 0;
  if (config.memory_bytes != 0) options.max_memory_bytes = config.memory_bytes;
  BranchId id{};
  double stored_to_raw = 1;
  {
    CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path, options, report));
    CAIRN_RETURN_IF_ERROR(session->Write(store, &id));
    if (config.sealed) {
      const double start = NowUs();
      CAIRN_RETURN_IF_ERROR(store.Compact());
      report->Value("seal_mb_per_s", static_cast<double>(session->bytes()) / (NowUs() - start),
                    "KV read, packed, written, read back and compared, 10^6 bytes a second");
      const StoreMetrics metrics = store.Metrics();
      const uint64_t files_bytes =
          metrics.physical_bytes - metrics.log_spare_segments * metrics.segment_bytes;
      stored_to_raw = static_cast<double>(files_bytes) / static_cast<double>(session->bytes());
      report->Value("stored_to_raw", stored_to_raw, "all files but spare segments, to the KV");
    }
    CAIRN_RETURN_IF_ERROR(store.Close());
  }
  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw", session->bytes()));

  // Each restore has a freshly opened store, so that nothing is in its memory.
  Store store;
  Branch branch;
  std::vector<double> open_us;
  Arm ours{.name = "cairn", .bytes_per_op = session->bytes(), .max_ops_per_block = 1};
  ours.before_block = [&] {
    CAIRN_RETURN_IF_ERROR(store.Close());
    DropFileCaches(scratch);
    const double start = NowUs();
    CAIRN_ASSIGN_OR_RETURN(store, OpenStore(path, options, report));
    open_us.push_back(NowUs() - start);
    CAIRN_RETURN_IF_ERROR(WaitForPool(store, 0));
    CAIRN_ASSIGN_OR_RETURN(branch, store.GetBranch(id));
    return Status::Ok();
  };
  ours.op = [&](double*) { return session->Restore(branch); };
  Arm moved{.name = "moved", .bytes_per_op = session->bytes(), .max_ops_per_block = 1};
  moved.before_block = ours.before_block;
  moved.op = [&](double*) { return session->RestoreMoved(branch); };
  Arm raw{.name = "raw read", .bytes_per_op = session->bytes(), .max_ops_per_block = 1};
  raw.op = [&](double*) { return raw_file->Read(0, session->target().bytes()); };
  CAIRN_RETURN_IF_ERROR(RunInterleaved(config, "restore-cold", {&ours, &moved, &raw}));

  ReportRestore(ours, *session, report);
  report->Value("open_ms", Median(open_us) * 1e-3, "opening the store, not part of the restore");
  report->Value("raw_read_ms", raw.p50_us() * 1e-3, "ring of 512 KiB x 16 reads of one file");
  report->Value("raw_read_gb_per_s", raw.gb_per_s(), "the same");
  report->Value("raw_cpu_s_per_gb", raw.cpu_s_per_gb(), "CPU of the raw reads");
  ReportMoved(ours, moved, report);
  const Ratio to_raw = RatioOfBytes(ours, raw);
  report->AddRatio("logical_to_raw_read", to_raw, "higher is better");
  if (config.sealed) {
    report->AddRatio("logical_to_raw_read_packed",
                     {.value = to_raw.value * stored_to_raw,
                      .min = to_raw.min * stored_to_raw,
                      .max = to_raw.max * stored_to_raw},
                     "the same over what packing gains; 1 is the disk's limit");
  }
  return store.Close();
}

Status RunRestoreWarm(const Config& config, const std::string& scratch, Report* report) {
  const uint64_t wanted = config.session_bytes > 0 ? config.session_bytes : 256ull << 20;
  CAIRN_ASSIGN_OR_RETURN(auto session, Session::Create(config, wanted));
  Options options;
  options.segment_bytes = config.segment_bytes;
  options.log_bytes_max = UINT64_MAX;  // Out of the chain of deltas.
  options.snapshot_interval_tokens = options.max_delta_chain = 0;
  options.hot_tail_bytes = session->bytes() / 4 * 5 + (64 << 20);  // All of it, with room.
  options.max_memory_bytes = options.hot_tail_bytes + (1ull << 30);
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(scratch + "/store", options, report));
  BranchId id{};
  CAIRN_RETURN_IF_ERROR(session->Write(store, &id));
  CAIRN_RETURN_IF_ERROR(WaitForPool(store, 0));
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.GetBranch(id));

  // The copies read memory of their own: as many bytes as the session has, canonically ordered.
  AlignedBuffer canonical =
      AlignedBuffer::TryAllocate(Allocator::Default(), session->bytes(), 4096);
  if (canonical.empty()) return Status(StatusCode::kOutOfMemory, "memory to copy from");
  std::fill(canonical.span().begin(), canonical.span().end(), std::byte{1});
  KvCursor cursor(session->target(), 0);
  std::vector<Piece> pieces;
  ListPieces(session->target().model(), cursor.At(0, session->tokens()), &pieces);

  Arm ours{.name = "cairn", .bytes_per_op = session->bytes()};
  ours.op = [&](double*) { return session->Restore(branch); };
  Arm moved{.name = "moved", .bytes_per_op = session->bytes()};
  moved.op = [&](double*) { return session->RestoreMoved(branch); };
  Arm copy{.name = "memcpy", .bytes_per_op = session->bytes()};
  copy.op = [&](double*) {
    std::memcpy(session->target().bytes().data(), canonical.data(), session->bytes());
    return Status::Ok();
  };
  Arm scatter{.name = "scatter", .bytes_per_op = session->bytes()};
  scatter.op = [&](double*) {
    Scatter(canonical.data(), pieces);
    return Status::Ok();
  };
  CAIRN_RETURN_IF_ERROR(RunInterleaved(config, "restore-warm", {&ours, &moved, &copy, &scatter}));

  ReportRestore(ours, *session, report);
  ReportMoved(ours, moved, report);
  report->Value("memcpy_gb_per_s", copy.gb_per_s(), "one memcpy of as many bytes, one thread");
  report->Value("scatter_gb_per_s", scatter.gb_per_s(),
                "memcpy piece by piece into the same layout");
  report->AddRatio("to_memcpy", RatioOfBytes(ours, copy), "higher is better");
  report->AddRatio("to_scatter", RatioOfBytes(ours, scatter), "the same against piecewise memcpy");
  return store.Close();
}

}  // namespace cairn::bench
