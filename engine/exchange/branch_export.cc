// SPDX-License-Identifier: Apache-2.0
//
// A branch to a file: first its description, as far as that is known; then ids, KV and states to
// the places that it gives them; then the description again, with lengths and digests.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>

#include "engine/exchange/branch_file.h"
#include "engine/exchange/exchange.h"
#include "engine/exchange/kv_chunk.h"
#include "engine/exchange/output_file.h"
#include "engine/exchange/pipeline.h"
#include "engine/exchange/snapshot_digest.h"
#include "engine/exchange/state_records.h"
#include "engine/store/store_core.h"
#include "engine/tree/memory/fragment_layout.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/memory/retention.h"

namespace cairn::engine {

namespace {

// Longer than any number that takes their place in the header.
constexpr uint64_t kUnknownBytes = 1'000'000'000'000'000;

class BranchExport {
 public:
  BranchExport(StoreCore* core, BranchId id, const ExportOptions& options,
               const ExportProgress& progress)
      : core_(core), id_(id), options_(options), progress_(progress) {}

  Result<ExportInfo> Run(const std::string& path) {
    CAIRN_RETURN_IF_ERROR(Describe());
    CAIRN_RETURN_IF_ERROR(MakeHeader());
    CAIRN_ASSIGN_OR_RETURN(
        auto files, FilesOfExports(*core_->write_means().options, core_->write_means().world));
    CAIRN_ASSIGN_OR_RETURN(OutputFile output,
                           OutputFile::Create(std::move(files), path, options_.replace));
    output_ = &output;
    CAIRN_RETURN_IF_ERROR(WriteTokens());
    CAIRN_RETURN_IF_ERROR(WriteKv());
    CAIRN_RETURN_IF_ERROR(WriteStates());
    CAIRN_RETURN_IF_ERROR(CheckUnchanged());
    const std::string header = EncodeHeader(HeaderOf(file_), header_bytes_);
    CAIRN_CHECK(header.size() == header_bytes_);
    CAIRN_RETURN_IF_ERROR(output.Write(0, std::as_bytes(std::span(header))));
    CAIRN_RETURN_IF_ERROR(output.Finish());
    return Info();
  }

 private:
  Status Describe();
  Status CheckSpans();
  Status DescribeKv();
  Status MakeHeader();
  Status WriteTokens();
  Result<std::array<std::string, 2>> SnapshotIds(bool write);
  Result<bool> IsInTables(uint32_t group);
  Status WriteKv();
  Status ReadPiece(const KvPiece& piece, std::span<std::byte> memory);
  Status WriteStates();
  Status CheckUnchanged();
  ExportInfo Info() const;
  void Done(uint64_t bytes) {
    done_bytes_ += bytes;
    if (progress_) progress_(done_bytes_, header_bytes_ + data_bytes_);
  }

  StoreCore* const core_;
  const BranchId id_;
  const ExportOptions& options_;
  const ExportProgress& progress_;
  BranchFile file_;
  std::vector<Lookup::StatePosition> states_;
  uint64_t kv_begin_ = 0;
  uint64_t header_bytes_ = 0, data_bytes_ = 0, done_bytes_ = 0;
  OutputFile* output_ = nullptr;
};

Status BranchExport::Describe() {
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, core_->lookup().Info(id_));
  CAIRN_ASSIGN_OR_RETURN(ModelInfo model, core_->lookup().GetModel(info.model));
  CAIRN_ASSIGN_OR_RETURN(const Range range,
                         RangeOf(options_.begin, options_.end, info.length, "export"));
  file_.begin = range.begin;
  file_.end = range.end;
  file_.name = info.name;
  file_.ns = info.ns;
  file_.keep = info.keep;
  file_.created_at_ns = info.created_at_ns;
  file_.updated_at_ns = info.updated_at_ns;
  file_.model = std::move(model.spec);
  kv_begin_ = options_.kv_begin;
  if (kv_begin_ == UINT64_MAX) kv_begin_ = file_.begin - std::min<uint64_t>(file_.begin, 1);
  if (kv_begin_ > file_.begin) {
    return Status(StatusCode::kInvalidArgument,
                  "kv_begin is " + std::to_string(kv_begin_) + ", behind begin, " +
                      std::to_string(file_.begin) + ": that KV could not be imported");
  }
  CAIRN_ASSIGN_OR_RETURN(file_.spans, core_->lookup().Spans(id_, file_.begin, file_.end));
  CAIRN_RETURN_IF_ERROR(CheckSpans());
  CAIRN_ASSIGN_OR_RETURN(states_, core_->lookup().StatesIn(id_, file_.begin, file_.end));
  return DescribeKv();
}

// A span that is cut at the end is shorter there, as in a fork. The beginning of a part cannot be.
Status BranchExport::CheckSpans() {
  for (ContentSpan& span : file_.spans) {
    if (span.begin < file_.begin || (span.end > file_.end && span.atomic)) {
      const uint64_t at = span.begin < file_.begin ? file_.begin : file_.end;
      return Status(StatusCode::kInvalidArgument,
                    "position " + std::to_string(at) + " is inside the content span [" +
                        std::to_string(span.begin) + ", " + std::to_string(span.end) + ")");
    }
    span.end = std::min(span.end, file_.end);
  }
  return Status::Ok();
}

Status BranchExport::DescribeKv() {
  CAIRN_ASSIGN_OR_RETURN(const auto all, core_->lookup().KvRuns(id_, kv_begin_, file_.end));
  for (size_t i = 0; i < all.size(); ++i) {
    const LayerGroup& group = file_.model.groups[i];
    GroupKv kv;
    kv.digest_positions = DigestPositionsOf(group);
    for (const Lookup::KvRun& run : all[i]) {
      // Behind a gap no branch could take it.
      const uint64_t end = kv.runs.empty() ? kv_begin_ : kv.runs.back().end;
      if (!MayHaveGaps(group) && run.begin != end) break;
      if (kv.runs.empty() || run.begin != end) kv.runs.push_back({run.begin, run.begin});
      kv.runs.back().end = run.end;
      if (!run.exact) kv.approximate.push_back({run.begin, run.end});
    }
    file_.groups.push_back(std::move(kv));
  }
  return Status::Ok();
}

Status BranchExport::MakeHeader() {
  if (DigestBlocksOf(file_) > kDigestBlocksMax) {
    return Status(StatusCode::kInvalidArgument,
                  "KV of this many positions needs too many digests; export it in parts");
  }
  file_.snapshot_id = file_.base_snapshot_id = HexOf(Digest());
  if (!states_.empty()) {
    file_.states = {.bytes = kUnknownBytes, .offset = 0, .digest = HexOf(Digest())};
    auto newest = core_->reads().StateAt(id_, file_.end, /*sampler=*/true);
    if (newest.ok() && newest->position >= file_.begin) file_.sampler = newest->sampler;
    if (!newest.ok() && newest.status().code() != StatusCode::kNotFound) return newest.status();
  }
  file_.lossy_bytes = kUnknownBytes;
  data_bytes_ = PlaceTensors(&file_) - file_.states.bytes;
  header_bytes_ = EncodeHeader(HeaderOf(file_)).size();
  file_.lossy_bytes = 0;
  if (header_bytes_ <= kHeaderBytesMax) return Status::Ok();
  return Status(StatusCode::kInvalidArgument,
                "the description of the branch has " + std::to_string(header_bytes_) +
                    " bytes, at most " + std::to_string(kHeaderBytesMax) + " are read");
}

// The ids of the snapshots that end at end and begin. With `write` the file gets its tokens.
Result<std::array<std::string, 2>> BranchExport::SnapshotIds(bool write) {
  SnapshotDigest digest(file_.model);
  BlockDigest tokens;
  std::array<std::string, 2> ids;
  const auto id_at = [&](uint64_t end) -> Result<std::string> {
    CAIRN_ASSIGN_OR_RETURN(std::vector<ContentSpan> spans, core_->lookup().Spans(id_, 0, end));
    for (ContentSpan& span : spans) span.end = std::min(span.end, end);
    return digest.Id(spans);
  };
  for (uint64_t begin = 0; begin < file_.end;) {
    const uint64_t limit = begin < file_.begin ? file_.begin : file_.end;
    const uint64_t end = std::min(begin + kIdsAtOnce, limit);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> read,
                           core_->reads().ReadTokens(id_, begin, end));
    digest.Add(read);
    if (write && begin >= file_.begin) {
      tokens.Add(std::as_bytes(std::span(read)));
      CAIRN_RETURN_IF_ERROR(output_->Write(
          header_bytes_ + file_.tokens.offset + (begin - file_.begin) * sizeof(TokenId),
          std::as_bytes(std::span(read))));
      Done(read.size() * sizeof(TokenId));
    }
    begin = end;
    if (begin == file_.begin) {
      CAIRN_ASSIGN_OR_RETURN(ids[1], id_at(begin));
    }
  }
  CAIRN_ASSIGN_OR_RETURN(ids[0], id_at(file_.end));
  if (write) file_.tokens.digest = HexOf(tokens.Finish());
  return ids;
}

Status BranchExport::WriteTokens() {
  CAIRN_ASSIGN_OR_RETURN(auto ids, SnapshotIds(/*write=*/true));
  file_.snapshot_id = std::move(ids[0]);
  file_.base_snapshot_id = std::move(ids[1]);
  return Status::Ok();
}

// Whether the tokens are still those that the KV was read for.
Status BranchExport::CheckUnchanged() {
  const auto ids = SnapshotIds(/*write=*/false);
  if (!ids.ok() && ids.status().code() != StatusCode::kInvalidArgument) return ids.status();
  if (ids.ok() && (*ids)[0] == file_.snapshot_id) return Status::Ok();
  return Status(StatusCode::kConflict, "the branch was rewound while it was exported");
}

Status BranchExport::ReadPiece(const KvPiece& piece, std::span<std::byte> memory) {
  const PieceView view(file_.model, piece, memory, piece.begin, piece.end);
  RestoreItem item;
  item.request.into = view.view();
  item.sources.push_back(
      {.branch = id_, .begin = piece.begin, .end = piece.end, .needed_end = UINT64_MAX});
  item.counts = false;
  CAIRN_RETURN_IF_ERROR(core_->reads().RestoreMany({&item, 1}, UINT64_MAX));
  CAIRN_RETURN_IF_ERROR(item.status);
  file_.lossy_bytes += item.result.lossy_bytes;
  if (item.result.bytes == piece.bytes) return Status::Ok();
  return Status(StatusCode::kEvicted, "KV of positions [" + std::to_string(piece.begin) + ", " +
                                          std::to_string(piece.end) +
                                          ") was evicted while it was exported");
}

// Most of the group's KV. A page of a table has many positions of one head, a record of the log few
// positions of all heads: pieces are cut so that few of them need the same one.
Result<bool> BranchExport::IsInTables(uint32_t group) {
  const WriteDeps& deps = core_->write_means();
  Committer::Lock lock(deps.mutex());
  CAIRN_ASSIGN_OR_RETURN(const Head* const head, deps.access->LoadBranch(id_, &lock));
  uint64_t in_tables = 0, in_log = 0;
  for (const LanePiece& piece :
       CollectLane(deps.tree(), *head, 1 + group, kv_begin_, file_.end)) {
    if (piece.extent.place.absent()) continue;
    (piece.extent.place.in_table() ? in_tables : in_log) += piece.end - piece.begin;
  }
  return in_tables >= in_log;
}

Status BranchExport::WriteKv() {
  const uint64_t wanted = ExchangeBufferBytes(core_->staging());
  std::vector<uint64_t> rows;
  for (uint32_t group = 0; group < file_.groups.size(); ++group) {
    CAIRN_ASSIGN_OR_RETURN(const bool in_tables, IsInTables(group));
    rows.push_back(in_tables ? FragmentLayout(file_.model, 1 + group).page_rows() : 0);
  }
  const std::vector<KvPiece> pieces =
      CutKv(file_, wanted, [&](uint32_t group) { return rows[group]; });
  KvDigests digests(file_);
  uint64_t bytes = 0;
  for (const KvPiece& piece : pieces) bytes = std::max(bytes, piece.bytes);
  if (bytes == 0) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const ExchangeBuffers buffers,
                         ExchangeBuffers::Take(&core_->staging(), bytes));
  Helper helper(core_);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const KvPiece& piece = pieces[i];
    const std::span<std::byte> memory = buffers.span(i).first(piece.bytes);
    CAIRN_RETURN_IF_ERROR(ReadPiece(piece, memory));
    const auto write = [&, memory]() -> Status {
      for (const KvStrip& strip : StripsOf(file_, piece, memory)) {
        digests.Add(piece, strip);
        CAIRN_RETURN_IF_ERROR(output_->Write(header_bytes_ + strip.offset, strip.bytes));
      }
      return Status::Ok();
    };
    CAIRN_RETURN_IF_ERROR(helper.Start(write));
    Done(piece.bytes);
  }
  CAIRN_RETURN_IF_ERROR(helper.Wait());
  for (size_t i = 0; i < file_.tensors.size(); ++i) file_.tensors[i].digest = digests.Of(i);
  return Status::Ok();
}

Status BranchExport::WriteStates() {
  BlockDigest digest;
  uint64_t bytes = 0;
  const auto read = [&](uint64_t position, bool sampler) -> Result<Branch::StateAt> {
    CAIRN_ASSIGN_OR_RETURN(auto state, core_->reads().StateAt(id_, position, sampler));
    if (state.position == position) return state;
    return Status(StatusCode::kConflict, "the branch was rewound while it was exported");
  };
  for (const Lookup::StatePosition& at : states_) {
    Branch::StateAt state;
    state.position = at.position;
    if (at.sampler) {
      CAIRN_ASSIGN_OR_RETURN(auto found, read(at.position, true));
      state.sampler = std::move(found.sampler);
    }
    if (at.metadata) {
      CAIRN_ASSIGN_OR_RETURN(auto found, read(at.position, false));
      state.metadata = std::move(found.metadata);
    }
    const std::vector<std::byte> record = StateToRecord(state).Encode();
    CAIRN_RETURN_IF_ERROR(output_->Write(header_bytes_ + file_.states.offset + bytes, record));
    digest.Add(record);
    bytes += record.size();
    data_bytes_ += record.size();
    Done(record.size());
  }
  if (states_.empty()) return Status::Ok();
  file_.states.bytes = bytes;
  file_.states.digest = HexOf(digest.Finish());
  return Status::Ok();
}

ExportInfo BranchExport::Info() const {
  ExportInfo info{.snapshot_id = file_.snapshot_id,
                  .base_snapshot_id = file_.base_snapshot_id,
                  .begin = file_.begin,
                  .end = file_.end,
                  .kv_bytes = file_.kv_bytes(),
                  .file_bytes = header_bytes_ + data_bytes_};
  for (const GroupKv& group : file_.groups) {
    info.kv_ends.push_back(group.runs.empty() ? kv_begin_ : group.runs.back().end);
  }
  return info;
}

}  // namespace

Result<ExportInfo> ExportBranch(StoreCore* core, BranchId id, const std::string& path,
                                const ExportOptions& options, const ExportProgress& progress) {
  const Lifecycle::Call call(core->write_means().lifecycle);
  CAIRN_RETURN_IF_ERROR(core->lifecycle().CheckUsable());
  CAIRN_RETURN_IF_ERROR(core->lookup().CheckExists(id));
  return BranchExport(core, id, options, progress).Run(path);
}

}  // namespace cairn::engine
