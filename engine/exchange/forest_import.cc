// SPDX-License-Identifier: Apache-2.0
//
// A forest's file to branches. The file is read twice: once for its digest, and then record by
// record. Branches have names that nobody asks for until all are whole.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>

#include "base/core/text.h"
#include "base/io/path.h"
#include "engine/exchange/branch_writer.h"
#include "engine/exchange/exchange.h"
#include "engine/exchange/forest_file.h"
#include "engine/exchange/model_json.h"
#include "engine/exchange/output_file.h"
#include "engine/exchange/state_records.h"
#include "engine/store/store_core.h"

namespace cairn::engine {

namespace {

// Names that fit the smallest record of the log.
constexpr size_t kRenamesAtOnce = 256;

Status BadForest(const std::string& what) { return Status(StatusCode::kCorruption, what); }

// Records of a file from an offset on, read in blocks.
class RecordFile {
 public:
  RecordFile(io::File* file, uint64_t begin, uint64_t end)
      : file_(file),
        end_(end),
        at_(begin),
        reader_([this](std::span<std::byte> into) { return Fill(into); }, end - begin) {}
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Where the next record begins.
  uint64_t offset() const { return end_ - reader_.left(); }
  bool ended() const { return reader_.left() == 0; }
  // And its kind.
  Result<PackRecord> Next(std::string* kind) {
    const uint64_t begin = offset();
    auto record = reader_.Next();
    const auto where = [&] { return "the record at byte " + std::to_string(begin); };
    if (!record.ok()) return record.status().WithContext(where());
    kind->clear();
    const Status read = record->Read("record", kind);
    if (!read.ok()) return read.WithContext(where());
    return record;
  }

 private:
  Status Fill(std::span<std::byte> into) {
    while (!into.empty()) {
      if (used_ == block_.size()) {
        block_.resize(std::min<uint64_t>(64u << 10, end_ - at_));
        CAIRN_RETURN_IF_ERROR(file_->Read(at_, block_));
        at_ += block_.size();
        used_ = 0;
      }
      const size_t bytes = std::min(into.size(), block_.size() - used_);
      std::copy_n(block_.begin() + static_cast<ptrdiff_t>(used_), bytes, into.begin());
      used_ += bytes;
      into = into.subspan(bytes);
    }
    return Status::Ok();
  }

  io::File* const file_;
  const uint64_t end_;
  uint64_t at_;
  std::vector<std::byte> block_;
  size_t used_ = 0;
  PackReader reader_;
};

class ForestImport {
 public:
  ForestImport(StoreCore* core, const ExportProgress& progress)
      : core_(core), progress_(progress) {}
  Result<ForestInfo> Run(const std::string& path);

 private:
  struct Made {
    BranchId id{};
    std::string name;
  };
  // A branch's record, and what follows it.
  struct Described {
    uint64_t branch = 0, model = 0, length = 0, fork = 0, position = 0;
    BranchOptions options;
    std::vector<ContentSpan> spans;
    uint64_t states_begin = 0, states_end = 0;  // Bytes of the file.
  };

  Status Check();
  Status DropLeftovers();
  Status Bring();
  Status TakeModel(const PackRecord& record);
  Result<Described> Describe(const PackRecord& record);
  Status ReadSpan(const PackRecord& record, Described* about);
  Result<PackRecord> ReadSpansAndStates(RecordFile* records, Described* about, std::string* kind);
  Result<BranchId> MakeBranch(const Described& about);
  Status BringBranch(RecordFile* records, Described* about, std::optional<PackRecord>* next,
                     std::string* kind);
  Status Publish();
  std::string Temporary(size_t number) const {
    return kImportPrefix + digest_ + "-" + std::to_string(number);
  }

  StoreCore* const core_;
  const ExportProgress& progress_;
  std::unique_ptr<io::File> file_;
  uint64_t end_ = 0;    // Where the record of the digest begins.
  std::string digest_;  // The file's.
  std::map<uint64_t, ModelId> models_;
  std::map<uint64_t, BranchId> branches_;  // By the file's number.
  std::vector<Made> made_;
  ForestInfo info_;
};

Status ForestImport::Check() {
  CAIRN_ASSIGN_OR_RETURN(info_.file_bytes, file_->Size());
  std::string kind;
  RecordFile records(file_.get(), 0, info_.file_bytes);
  const auto first = records.Next(&kind);
  if (!first.ok() || kind != "forest") {
    if (first.status().code() == StatusCode::kIoError) return first.status();
    return Status(StatusCode::kInvalidArgument, "is no exported forest");
  }
  uint64_t version = 0;
  CAIRN_RETURN_IF_ERROR(first->Read("version", &version));
  if (version != kForestVersion) {
    return Status(StatusCode::kUnsupportedFormat,
                  "is a forest of version " + std::to_string(version) + "; this is 1");
  }
  if (info_.file_bytes < records.offset() + kForestEndBytes) return BadForest("is cut");
  end_ = info_.file_bytes - kForestEndBytes;
  BlockDigest digest;
  std::vector<std::byte> block;
  for (uint64_t at = 0; at < end_; at += block.size()) {
    block.resize(std::min<uint64_t>(BlockDigest::kBlockBytes, end_ - at));
    CAIRN_RETURN_IF_ERROR(file_->Read(at, block));
    digest.Add(block);
  }
  block.resize(kForestEndBytes);
  CAIRN_RETURN_IF_ERROR(file_->Read(end_, block));
  if (block != ForestEnd(digest.Finish()).Encode()) {
    return BadForest("is cut, or damaged: it does not end with the digest of what it holds");
  }
  digest_ = HexOf(digest.Finish());
  return Status::Ok();
}

// What an interrupted import of this file left.
Status ForestImport::DropLeftovers() {
  CAIRN_ASSIGN_OR_RETURN(const auto namespaces, core_->lookup().Namespaces());
  for (const NamespaceInfo& one : namespaces) {
    CAIRN_ASSIGN_OR_RETURN(
        const BranchPage page,
        core_->lookup().ListBranches(one.name, kImportPrefix + digest_ + "-", SIZE_MAX, ""));
    for (const BranchInfo& info : page.branches) {
      CAIRN_RETURN_IF_ERROR(core_->changes().Drop(info.id, Durability::kMemory));
    }
  }
  return Status::Ok();
}

Status ForestImport::TakeModel(const PackRecord& record) {
  uint64_t number = 0;
  std::string spec;
  CAIRN_RETURN_IF_ERROR(record.Read("model", &number));
  CAIRN_RETURN_IF_ERROR(record.Read("spec", &spec));
  CAIRN_ASSIGN_OR_RETURN(const Json json, ParseJson(spec, "spec"));
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec model, ModelFromJson(json, "spec"));
  CAIRN_ASSIGN_OR_RETURN(models_[number],
                         core_->changes().RegisterModel(model, Durability::kMemory));
  ++info_.models;
  return Status::Ok();
}

Result<ForestImport::Described> ForestImport::Describe(const PackRecord& record) {
  Described about;
  uint64_t priority = 0;
  CAIRN_RETURN_IF_ERROR(record.Read("branch", &about.branch));
  CAIRN_RETURN_IF_ERROR(record.Read("model", &about.model));
  CAIRN_RETURN_IF_ERROR(record.Read("name", &about.options.name));
  CAIRN_RETURN_IF_ERROR(record.Read("namespace", &about.options.ns));
  CAIRN_RETURN_IF_ERROR(record.Read("length", &about.length));
  CAIRN_RETURN_IF_ERROR(record.Read("fork", &about.fork));
  CAIRN_RETURN_IF_ERROR(record.Read("position", &about.position));
  CAIRN_RETURN_IF_ERROR(record.Read("pinned", &about.options.keep.pinned));
  CAIRN_RETURN_IF_ERROR(record.Read("priority", &priority));
  CAIRN_RETURN_IF_ERROR(record.Read("ttl_ns", &about.options.keep.ttl_ns));
  if (priority > UINT8_MAX) return BadForest("priority is " + std::to_string(priority));
  about.options.keep.priority = static_cast<uint8_t>(priority);
  if (branches_.contains(about.branch)) {
    return BadForest("branch " + std::to_string(about.branch) + " is there twice");
  }
  if (!models_.contains(about.model)) {
    return BadForest("model " + std::to_string(about.model) + " is not there");
  }
  if (about.position > about.length || (about.position != 0 && !branches_.contains(about.fork))) {
    return BadForest("is a fork at " + std::to_string(about.position) + " of " +
                     std::to_string(about.fork) + ", which cannot be");
  }
  return about;
}

Status ForestImport::ReadSpan(const PackRecord& record, Described* about) {
  ContentSpan span;
  CAIRN_RETURN_IF_ERROR(record.Read("begin", &span.begin));
  CAIRN_RETURN_IF_ERROR(record.Read("end", &span.end));
  CAIRN_RETURN_IF_ERROR(record.Read("hash_0", &span.hash[0]));
  CAIRN_RETURN_IF_ERROR(record.Read("hash_1", &span.hash[1]));
  CAIRN_RETURN_IF_ERROR(record.Read("atomic", &span.atomic));
  const uint64_t least = about->spans.empty() ? about->position : about->spans.back().end;
  if (span.begin < least || span.begin >= span.end || span.end > about->length) {
    return BadForest("a span does not lie behind the one before, within the tokens");
  }
  about->spans.push_back(span);
  return Status::Ok();
}

// Returns the record behind them.
Result<PackRecord> ForestImport::ReadSpansAndStates(RecordFile* records, Described* about,
                                                    std::string* kind) {
  while (true) {
    const uint64_t begin = records->offset();
    if (records->ended()) {
      kind->clear();
      if (about->states_begin != 0) about->states_end = begin;
      return PackRecord();
    }
    CAIRN_ASSIGN_OR_RETURN(PackRecord record, records->Next(kind));
    if (*kind == "span" && about->states_begin == 0) {
      CAIRN_RETURN_IF_ERROR(ReadSpan(record, about));
    } else if (*kind == "state") {
      if (about->states_begin == 0) about->states_begin = begin;
    } else {
      if (about->states_begin != 0) about->states_end = begin;
      return record;
    }
  }
}

Result<BranchId> ForestImport::MakeBranch(const Described& about) {
  const std::string& name = about.options.name;
  if (!name.empty()) {
    const auto exists = core_->lookup().FindBranch(name, about.options.ns);
    if (exists.ok()) {
      return Status(StatusCode::kAlreadyExists,
                    "branch " + Quoted(name) + " exists in namespace " + Quoted(about.options.ns));
    }
    if (exists.status().code() != StatusCode::kNotFound) return exists.status();
  }
  BranchOptions options = about.options;
  options.name = Temporary(made_.size());
  options.durability = Durability::kMemory;
  const auto id = about.position != 0
                      ? core_->changes().Fork(branches_.at(about.fork), about.position, options)
                      : core_->changes().Create(models_.at(about.model), options);
  if (id.ok()) made_.push_back({*id, name});
  return id;
}

// `next` is the first record that is not the branch's; nothing at the end.
Status ForestImport::BringBranch(RecordFile* records, Described* about,
                                 std::optional<PackRecord>* next, std::string* kind) {
  CAIRN_ASSIGN_OR_RETURN(*next, ReadSpansAndStates(records, about, kind));
  CAIRN_ASSIGN_OR_RETURN(const BranchId id, MakeBranch(*about));
  RecordFile states(file_.get(), about->states_begin, about->states_end);
  PackBytes ids;
  size_t used = 0;
  const auto more_ids = [&](uint64_t at) -> Status {
    if (*kind != "ids") return BadForest("ids from " + std::to_string(at) + " on are missing");
    uint64_t begin = 0;
    CAIRN_RETURN_IF_ERROR((*next)->Read("begin", &begin));
    CAIRN_RETURN_IF_ERROR((*next)->Read("ids", &ids));
    if (begin != at || ids.empty() || ids.size() % sizeof(TokenId) != 0) {
      return BadForest("ids at " + std::to_string(begin) + " are not those that follow");
    }
    used = 0;
    kind->clear();
    if (records->ended()) return Status::Ok();
    CAIRN_ASSIGN_OR_RETURN(*next, records->Next(kind));
    return Status::Ok();
  };
  const BranchWriter::Source source{
      .tokens = [&](uint64_t begin, std::span<TokenId> into) -> Status {
        auto bytes = std::as_writable_bytes(into);
        while (!bytes.empty()) {
          const uint64_t at = begin + into.size() - bytes.size() / sizeof(TokenId);
          if (used == ids.size()) CAIRN_RETURN_IF_ERROR(more_ids(at));
          const size_t count = std::min(bytes.size(), ids.size() - used);
          std::copy_n(ids.begin() + static_cast<ptrdiff_t>(used), count, bytes.begin());
          used += count;
          bytes = bytes.subspan(count);
        }
        return Status::Ok();
      },
      .spans = about->spans,
      .next_state = [&]() -> Result<std::optional<Branch::StateAt>> {
        if (states.ended()) return std::optional<Branch::StateAt>();
        std::string state_kind;
        CAIRN_ASSIGN_OR_RETURN(const PackRecord record, states.Next(&state_kind));
        CAIRN_ASSIGN_OR_RETURN(Branch::StateAt state, StateFromRecord(record));
        return std::optional(std::move(state));
      }};
  CAIRN_RETURN_IF_ERROR(
      BranchWriter(core_, id).Write(source, about->position, about->position, about->length));
  if (used != ids.size()) return BadForest("there are more ids than tokens");
  branches_[about->branch] = id;
  ++info_.branches;
  info_.tokens += about->length - about->position;
  return Status::Ok();
}

Status ForestImport::Bring() {
  RecordFile records(file_.get(), 0, end_);
  std::string kind;
  CAIRN_RETURN_IF_ERROR(records.Next(&kind).status());  // The first was looked at.
  std::optional<PackRecord> next;
  kind.clear();
  while (!kind.empty() || !records.ended()) {
    const uint64_t begin = records.offset();
    if (kind.empty()) {
      CAIRN_ASSIGN_OR_RETURN(next, records.Next(&kind));
    }
    const std::string now = std::exchange(kind, "");
    const auto where = [&] { return "the record before byte " + std::to_string(begin); };
    if (now == "model") {
      CAIRN_RETURN_IF_ERROR(TakeModel(*next).WithContext(where()));
    } else if (now == "branch") {
      auto about = Describe(*next);
      if (!about.ok()) return about.status().WithContext(where());
      CAIRN_RETURN_IF_ERROR(BringBranch(&records, &*about, &next, &kind));
    } else {
      return BadForest("a record " + Quoted(now) + " where none belongs").WithContext(where());
    }
    CAIRN_RETURN_IF_ERROR(core_->lifecycle().CheckUsable());
    if (progress_) progress_(records.offset(), end_);
  }
  return Publish();
}

Status ForestImport::Publish() {
  for (size_t first = 0; first < made_.size(); first += kRenamesAtOnce) {
    WriteBatch batch;
    for (size_t i = first; i < std::min(made_.size(), first + kRenamesAtOnce); ++i) {
      batch.Rename(Branch(core_->shared_from_this(), made_[i].id), made_[i].name);
    }
    AppendOptions options;
    options.durability = Durability::kMemory;
    CAIRN_RETURN_IF_ERROR(core_->Write(batch, options).status());
  }
  return core_->Flush();
}

Result<ForestInfo> ForestImport::Run(const std::string& path) {
  CAIRN_RETURN_IF_ERROR(io::CheckPath(path));
  CAIRN_ASSIGN_OR_RETURN(auto files,
                         FilesOfExports(*core_->write_means().options, core_->write_means().world));
  CAIRN_ASSIGN_OR_RETURN(file_, files->Open(path, {}));
  CAIRN_RETURN_IF_ERROR(Check().WithContext(path));
  const NamesTaken::Holder alone(&core_->imports(), digest_);
  if (!alone.has_it()) return Status(StatusCode::kBusy, path + ": another thread imports it now");
  CAIRN_RETURN_IF_ERROR(DropLeftovers());
  if (const Status brought = Bring(); !brought.ok()) {
    for (const Made& made : made_) (void)core_->changes().Drop(made.id, Durability::kMemory);
    return brought.WithContext(path);
  }
  return info_;
}

}  // namespace

Result<ForestInfo> ImportForest(StoreCore* core, const std::string& path,
                                const ExportProgress& progress) {
  const Lifecycle::Call call(core->write_means().lifecycle);
  CAIRN_RETURN_IF_ERROR(core->lifecycle().CheckWritable());
  return ForestImport(core, progress).Run(path);
}

}  // namespace cairn::engine
