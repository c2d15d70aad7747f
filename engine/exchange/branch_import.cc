// SPDX-License-Identifier: Apache-2.0
//
// A file to a branch. A whole one is made under a name that nobody asks for, and gets its own when
// all of it was read and agrees with its digests. A part is read twice: once to check it, and then
// into its branch, since that is visible as it grows. Ids come first, KV after them.
#include <algorithm>
#include <optional>
#include <string>

#include "base/core/text.h"
#include "base/io/path.h"
#include "engine/exchange/branch_file.h"
#include "engine/exchange/branch_writer.h"
#include "engine/exchange/exchange.h"
#include "engine/exchange/kv_chunk.h"
#include "engine/exchange/output_file.h"
#include "engine/exchange/pipeline.h"
#include "engine/exchange/snapshot_digest.h"
#include "engine/exchange/state_records.h"
#include "engine/store/store_core.h"
#include "engine/tree/memory/retention.h"

namespace cairn::engine {

namespace {

// KV that is given to the store at once.
constexpr uint64_t kFillBytes = 4u << 20;

class BranchImport {
 public:
  BranchImport(StoreCore* core, const ImportOptions& options, const ExportProgress& progress)
      : core_(core), options_(options), progress_(progress) {}

  Result<ImportInfo> Run(const std::string& path);

 private:
  Status Open(const std::string& path);
  Result<ModelId> FindModel();
  Status FindTarget(ModelId model);
  Status FindBase(ModelId model);
  Status MakeBranch(ModelId model);
  Status CheckKvConnects() const;
  Status Bring();
  Status BringTokens();
  Status CheckTokens(bool compare);
  Status CheckStates();
  using Consume = std::function<Status(const KvPiece&, std::span<std::byte>)>;
  Status ReadKv(const Consume& consume);
  Status FillPiece(const KvPiece& piece, std::span<std::byte> memory);
  Status Publish();
  void TakeBack();
  PackReader States();

  Status ReadTokens(uint64_t begin, std::span<TokenId> into) {
    return file_->Read(
        data_begin_ + about_.tokens.offset + (begin - about_.begin) * sizeof(TokenId),
        std::as_writable_bytes(into));
  }
  void Done(uint64_t bytes) {
    done_bytes_ += bytes;
    if (progress_) progress_(std::min(done_bytes_, file_bytes_), file_bytes_);
  }
  bool is_part() const { return about_.begin != 0; }

  StoreCore* const core_;
  const ImportOptions& options_;
  const ExportProgress& progress_;
  std::shared_ptr<io::FileSystem> files_;
  std::unique_ptr<io::File> file_;
  uint64_t file_bytes_ = 0, data_begin_ = 0, done_bytes_ = 0;
  BranchFile about_;
  std::string name_, ns_;
  BranchId id_{};
  uint64_t found_ = 0;              // The branch's length before.
  std::optional<uint64_t> length_;  // And what this made of it.
};

Status BranchImport::Open(const std::string& path) {
  CAIRN_RETURN_IF_ERROR(io::CheckPath(path));
  CAIRN_ASSIGN_OR_RETURN(files_,
                         FilesOfExports(*core_->write_means().options, core_->write_means().world));
  CAIRN_ASSIGN_OR_RETURN(file_, files_->Open(path, {}));
  CAIRN_ASSIGN_OR_RETURN(file_bytes_, file_->Size());
  const auto none = [](const std::string& why) {
    return Status(StatusCode::kInvalidArgument, "is no exported branch: " + why);
  };
  if (file_bytes_ < kHeaderLengthBytes) return none("it has fewer than eight bytes");
  std::byte length[kHeaderLengthBytes];
  CAIRN_RETURN_IF_ERROR(file_->Read(0, length));
  uint64_t header_bytes = 0;
  for (size_t i = kHeaderLengthBytes; i-- > 0;) {
    header_bytes = header_bytes << 8 | std::to_integer<uint64_t>(length[i]);
  }
  if (header_bytes > kHeaderBytesMax) {
    return none("its header would have " + std::to_string(header_bytes) + " bytes, at most " +
                std::to_string(kHeaderBytesMax) + " are read");
  }
  data_begin_ = kHeaderLengthBytes + header_bytes;
  if (data_begin_ > file_bytes_) {
    return Status(StatusCode::kCorruption, "is cut: its header ends at " +
                                               std::to_string(data_begin_) + ", the file at " +
                                               std::to_string(file_bytes_));
  }
  std::string text(header_bytes, '\0');
  CAIRN_RETURN_IF_ERROR(file_->Read(kHeaderLengthBytes, std::as_writable_bytes(std::span(text))));
  if (text.empty() || text.front() != '{') return none("no JSON begins behind its first 8 bytes");
  CAIRN_ASSIGN_OR_RETURN(const SafetensorsHeader header,
                         ParseHeader(text, file_bytes_ - data_begin_));
  CAIRN_ASSIGN_OR_RETURN(about_, BranchFileOf(header));
  return Status::Ok();
}

Result<ModelId> BranchImport::FindModel() {
  if (!options_.model.has_value()) {
    return core_->changes().RegisterModel(about_.model, Durability::kMemory);
  }
  CAIRN_ASSIGN_OR_RETURN(const ModelInfo model, core_->lookup().GetModel(*options_.model));
  const std::string difference = model.spec.FirstDifference(about_.model);
  if (difference.empty()) return model.id;
  return Status(StatusCode::kModelMismatch, "the model given is another one: " + difference);
}

Status BranchImport::FindTarget(ModelId model) {
  name_ = options_.name.value_or(about_.name);
  ns_ = options_.ns.value_or(about_.ns);
  return is_part() ? FindBase(model) : MakeBranch(model);
}

Status BranchImport::FindBase(ModelId model) {
  const auto found = core_->lookup().FindBranch(name_, ns_);
  if (!found.ok()) {
    return Status(found.status().code(),
                  "is a part, which goes on from snapshot " + about_.base_snapshot_id + " at " +
                      std::to_string(about_.begin) +
                      " tokens; import that first: " + std::string(found.status().message()));
  }
  id_ = *found;
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, core_->lookup().Info(id_));
  if (info.model != model) {
    CAIRN_ASSIGN_OR_RETURN(const ModelInfo has, core_->lookup().GetModel(info.model));
    return Status(StatusCode::kModelMismatch,
                  "the branch " + Quoted(name_) +
                      " is of another model: " + has.spec.FirstDifference(about_.model));
  }
  found_ = info.length;
  if (found_ < about_.begin) {
    return Status(StatusCode::kConflict,
                  "is a part, which goes on from " + std::to_string(about_.begin) +
                      " tokens; the branch " + Quoted(name_) + " has " + std::to_string(found_) +
                      ": import snapshot " + about_.base_snapshot_id + " first");
  }
  CAIRN_RETURN_IF_ERROR(CheckKvConnects());
  // All of it is checked before anything is changed.
  CAIRN_RETURN_IF_ERROR(CheckTokens(/*compare=*/true));
  CAIRN_RETURN_IF_ERROR(CheckStates());
  return ReadKv({});
}

// KV of a group without gaps goes on where the branch's ends.
Status BranchImport::CheckKvConnects() const {
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, core_->lookup().Info(id_));
  for (size_t i = 0; i < about_.groups.size(); ++i) {
    const std::vector<Range>& runs = about_.groups[i].runs;
    if (MayHaveGaps(about_.model.groups[i]) || runs.empty()) continue;
    if (runs.size() > 1) {
      return Status(StatusCode::kCorruption, "group " + Quoted(about_.model.groups[i].name) +
                                                 " has a gap that it cannot have");
    }
    if (runs[0].begin <= info.kv_lengths[i]) continue;
    return Status(StatusCode::kConflict,
                  "group " + Quoted(about_.model.groups[i].name) + " of the branch has KV up to " +
                      std::to_string(info.kv_lengths[i]) + ", the file from " +
                      std::to_string(runs[0].begin) + " on: export it with a kv_begin of " +
                      std::to_string(info.kv_lengths[i]));
  }
  return Status::Ok();
}

// The branch that an interrupted import of this file left, or a new one.
Status BranchImport::MakeBranch(ModelId model) {
  if (!name_.empty()) {
    const auto exists = core_->lookup().FindBranch(name_, ns_);
    if (exists.ok()) {
      return Status(StatusCode::kAlreadyExists,
                    "branch " + Quoted(name_) + " exists; give it another name");
    }
    if (exists.status().code() != StatusCode::kNotFound) return exists.status();
  }
  const std::string temporary = kImportPrefix + about_.snapshot_id;
  const auto left = core_->lookup().FindBranch(temporary, ns_);
  if (left.ok()) {
    id_ = *left;
    CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, core_->lookup().Info(id_));
    found_ = info.length;
    const bool same = info.model == model && found_ <= about_.end;
    const Status fits = same ? CheckTokens(/*compare=*/true) : Status();
    if (same && fits.ok()) return CheckKvConnects();
    if (same && fits.code() != StatusCode::kConflict) return fits;
    CAIRN_RETURN_IF_ERROR(core_->changes().Drop(id_, Durability::kMemory));
    found_ = 0;
  } else if (left.status().code() != StatusCode::kNotFound) {
    return left.status();
  }
  CAIRN_ASSIGN_OR_RETURN(
      id_, core_->changes().Create(
               model, {.name = temporary, .ns = ns_, .durability = Durability::kMemory}));
  return CheckKvConnects();
}

PackReader BranchImport::States() {
  const uint64_t begin = data_begin_ + about_.states.offset, bytes = about_.states.bytes;
  return PackReader(
      [this, at = begin](std::span<std::byte> into) mutable -> Status {
        CAIRN_RETURN_IF_ERROR(file_->Read(at, into));
        at += into.size();
        return Status::Ok();
      },
      bytes);
}

// The digests of ids, and of the snapshot. With `compare` the branch's ids are read as well, and
// must be the file's as far as both have them: else kConflict.
Status BranchImport::CheckTokens(bool compare) {
  SnapshotDigest digest(about_.model), has(about_.model);
  BlockDigest tokens;
  std::vector<TokenId> ids;
  const uint64_t common = compare ? std::min(found_, about_.end) : 0;
  const auto spans_below = [&](uint64_t end) -> Result<std::vector<ContentSpan>> {
    std::vector<ContentSpan> spans;
    if (is_part()) {
      CAIRN_ASSIGN_OR_RETURN(spans, core_->lookup().Spans(id_, 0, about_.begin));
    }
    for (const ContentSpan& span : about_.spans) {
      if (span.begin < end) spans.push_back(span);
    }
    for (ContentSpan& span : spans) span.end = std::min(span.end, end);
    return spans;
  };
  const auto conflict = [&](uint64_t at, const std::string& id) {
    return Status(StatusCode::kConflict,
                  "the branch " + Quoted(name_) + " is not what the file goes on from: its first " +
                      std::to_string(at) + " tokens, with the content spans, are not those of " +
                      "snapshot " + id);
  };
  for (uint64_t begin = 0; begin < about_.end;) {
    const uint64_t stops[] = {about_.begin, common, about_.end};
    uint64_t end = begin + kIdsAtOnce;
    for (const uint64_t stop : stops) {
      if (stop > begin) end = std::min(end, stop);
    }
    ids.resize(end - begin);
    if (begin < about_.begin) {
      CAIRN_ASSIGN_OR_RETURN(ids, core_->reads().ReadTokens(id_, begin, end));
    } else {
      CAIRN_RETURN_IF_ERROR(ReadTokens(begin, ids));
      tokens.Add(std::as_bytes(std::span(ids)));
    }
    digest.Add(ids);
    if (end <= common) {
      CAIRN_ASSIGN_OR_RETURN(const auto own, core_->reads().ReadTokens(id_, begin, end));
      has.Add(own);
    }
    begin = end;
    if (begin != about_.begin && begin != common) continue;
    if (!compare || begin > common) continue;
    CAIRN_ASSIGN_OR_RETURN(std::vector<ContentSpan> own, core_->lookup().Spans(id_, 0, begin));
    for (ContentSpan& span : own) span.end = std::min(span.end, begin);
    CAIRN_ASSIGN_OR_RETURN(const auto wanted, spans_below(begin));
    if (begin == about_.begin && has.Id(own) != about_.base_snapshot_id) {
      return conflict(begin, about_.base_snapshot_id);
    }
    if (has.Id(own) != digest.Id(wanted)) return conflict(begin, about_.snapshot_id);
  }
  if (HexOf(tokens.Finish()) != about_.tokens.digest) {
    return Status(StatusCode::kCorruption, "tensor \"tokens\" has another digest");
  }
  CAIRN_ASSIGN_OR_RETURN(const auto spans, spans_below(about_.end));
  if (digest.Id(spans) == about_.snapshot_id) return Status::Ok();
  return Status(StatusCode::kCorruption, "snapshot_id is not that of the file's tokens and spans");
}

Status BranchImport::CheckStates() {
  BlockDigest digest;
  std::vector<std::byte> bytes;
  for (uint64_t at = 0; at < about_.states.bytes; at += bytes.size()) {
    bytes.resize(std::min<uint64_t>(BlockDigest::kBlockBytes, about_.states.bytes - at));
    CAIRN_RETURN_IF_ERROR(file_->Read(data_begin_ + about_.states.offset + at, bytes));
    digest.Add(bytes);
  }
  if (about_.states.bytes == 0 || HexOf(digest.Finish()) == about_.states.digest) {
    return Status::Ok();
  }
  return Status(StatusCode::kCorruption, "tensor \"states\" has another digest");
}

Status BranchImport::BringTokens() {
  PackReader states = States();
  const BranchWriter::Source source{
      .tokens = [&](uint64_t begin, std::span<TokenId> into) { return ReadTokens(begin, into); },
      .spans = about_.spans,
      .next_state = [&]() -> Result<std::optional<Branch::StateAt>> {
        if (states.left() == 0) return std::optional<Branch::StateAt>();
        const Result<PackRecord> record = states.Next();
        if (!record.ok()) return record.status().WithContext("tensor \"states\"");
        CAIRN_ASSIGN_OR_RETURN(Branch::StateAt state, StateFromRecord(*record));
        return std::optional(std::move(state));
      }};
  const uint64_t from = std::clamp(found_, about_.begin, about_.end);
  if (found_ > about_.end) return Status::Ok();  // It has all of them, and later ones.
  BranchWriter writer(core_, id_);
  const Status written = writer.Write(source, about_.begin, from, about_.end);
  length_ = writer.length();
  return written;
}

// Gives each piece to `consume`, while the next one is read.
Status BranchImport::ReadKv(const Consume& consume) {
  const std::vector<KvPiece> pieces =
      CutKv(about_, ExchangeBufferBytes(core_->staging()));
  uint64_t bytes = 0;
  for (const KvPiece& piece : pieces) bytes = std::max(bytes, piece.bytes);
  if (bytes == 0) return Status::Ok();
  KvDigests digests(about_);
  CAIRN_ASSIGN_OR_RETURN(const ExchangeBuffers buffers,
                         ExchangeBuffers::Take(&core_->staging(), bytes));
  Helper helper(core_);
  const auto read = [&](size_t i) {
    const std::span<std::byte> memory = buffers.span(i).first(pieces[i].bytes);
    return helper.Start([&, i, memory]() -> Status {
      for (const KvStrip& strip : StripsOf(about_, pieces[i], memory)) {
        CAIRN_RETURN_IF_ERROR(file_->Read(data_begin_ + strip.offset, strip.bytes));
        digests.Add(pieces[i], strip);
      }
      return Status::Ok();
    });
  };
  CAIRN_RETURN_IF_ERROR(read(0));
  for (size_t i = 0; i < pieces.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(helper.Wait());
    if (i + 1 < pieces.size()) CAIRN_RETURN_IF_ERROR(read(i + 1));
    if (consume) {
      CAIRN_RETURN_IF_ERROR(consume(pieces[i], buffers.span(i).first(pieces[i].bytes)));
      Done(pieces[i].bytes);
    }
    CAIRN_RETURN_IF_ERROR(core_->lifecycle().CheckUsable());
  }
  for (size_t i = 0; i < about_.tensors.size(); ++i) {
    if (digests.Of(i) == about_.tensors[i].digest) continue;
    return Status(StatusCode::kCorruption,
                  "tensor " + Quoted(about_.tensors[i].name) + " has another digest");
  }
  return Status::Ok();
}

// Each call of Fill is about exact KV, or about KV that is not.
Status BranchImport::FillPiece(const KvPiece& piece, std::span<std::byte> memory) {
  const GroupKv& kv = about_.groups[piece.group];
  const uint64_t token_bytes = about_.model.groups[piece.group].token_bytes();
  const uint64_t step = std::max<uint64_t>(1, kFillBytes / token_bytes);
  for (uint64_t begin = piece.begin; begin < piece.end;) {
    uint64_t end = std::min(begin + step, piece.end);
    const auto approximate =
        std::upper_bound(kv.approximate.begin(), kv.approximate.end(), begin,
                         [](uint64_t at, const Range& range) { return at < range.end; });
    const bool exact = approximate == kv.approximate.end() || approximate->begin > begin;
    if (approximate != kv.approximate.end()) {
      end = std::min(end, exact ? approximate->begin : approximate->end);
    }
    const PieceView view(about_.model, piece, memory, begin, end);
    AppendOptions options;
    options.durability = Durability::kMemory;
    options.exact = exact;
    CAIRN_RETURN_IF_ERROR(core_->appender().Fill(id_, *view.view(), options));
    begin = end;
  }
  return Status::Ok();
}

Status BranchImport::Bring() {
  CAIRN_RETURN_IF_ERROR(CheckTokens(/*compare=*/false));
  CAIRN_RETURN_IF_ERROR(CheckStates());
  CAIRN_RETURN_IF_ERROR(BringTokens());
  Done(about_.tokens.bytes + about_.states.bytes);
  CAIRN_RETURN_IF_ERROR(ReadKv(
      [&](const KvPiece& piece, std::span<std::byte> memory) { return FillPiece(piece, memory); }));
  return Publish();
}

Status BranchImport::Publish() {
  if (!is_part()) {
    if (about_.keep != Keep()) {
      CAIRN_RETURN_IF_ERROR(core_->changes().SetKeep(id_, about_.keep, Durability::kMemory));
    }
    CAIRN_RETURN_IF_ERROR(core_->changes().Rename(id_, name_, Durability::kMemory));
  }
  return core_->Flush();
}

// Errors of this are not reported: the cause is, and the next import of the file meets the rest.
// What others appended meanwhile stays.
void BranchImport::TakeBack() {
  if (id_ == BranchId{}) return;
  if (!is_part()) {
    (void)core_->changes().Drop(id_, Durability::kMemory);
    return;
  }
  const auto length = core_->lookup().Length(id_);
  if (length_.has_value() && length.ok() && *length == *length_ && *length > found_) {
    (void)core_->changes().Rewind(id_, found_, Durability::kMemory);
  }
}

Result<ImportInfo> BranchImport::Run(const std::string& path) {
  CAIRN_RETURN_IF_ERROR(Open(path).WithContext(path));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model, FindModel());
  const std::string key = options_.ns.value_or(about_.ns) + '\0' +
                          (is_part() ? options_.name.value_or(about_.name) : about_.snapshot_id);
  const NamesTaken::Holder alone(&core_->imports(), key);
  if (!alone.has_it()) {
    return Status(StatusCode::kBusy, path + ": another thread imports it, or into its branch, now");
  }
  Status brought = FindTarget(model);
  if (brought.ok()) brought = Bring();
  if (!brought.ok()) {
    TakeBack();
    return brought.WithContext(path);
  }
  CAIRN_ASSIGN_OR_RETURN(BranchInfo info, core_->lookup().Info(id_));
  return ImportInfo{.branch = Branch(core_->shared_from_this(), id_),
                    .begin = about_.begin,
                    .end = about_.end,
                    .found = found_,
                    .kv_lengths = std::move(info.kv_lengths),
                    .kv_bytes = about_.kv_bytes()};
}

}  // namespace

Result<ImportInfo> ImportBranch(StoreCore* core, const std::string& path,
                                const ImportOptions& options, const ExportProgress& progress) {
  const Lifecycle::Call call(core->write_means().lifecycle);
  CAIRN_RETURN_IF_ERROR(core->lifecycle().CheckWritable());
  return BranchImport(core, options, progress).Run(path);
}

}  // namespace cairn::engine
