// SPDX-License-Identifier: Apache-2.0
//
// Branches without KV to a file. A branch whose path shares nodes with one that was written already
// is written as a fork of that.
#include <algorithm>
#include <map>
#include <optional>

#include "engine/exchange/exchange.h"
#include "engine/exchange/forest_file.h"
#include "engine/exchange/model_json.h"
#include "engine/exchange/output_file.h"
#include "engine/exchange/state_records.h"
#include "engine/store/store_core.h"

namespace cairn::engine {

namespace {

constexpr size_t kBranchesAtOnce = 1000;

class ForestExport {
 public:
  ForestExport(StoreCore* core, const ForestOptions& options, const ExportProgress& progress)
      : core_(core), options_(options), progress_(progress) {}

  Result<ForestInfo> Run(const std::string& path);

 private:
  // The branch that has most of a node, among those that were written; and how it was then.
  struct Written {
    BranchId branch{};
    uint64_t end = 0;
    uint64_t length = 0, updated_at_ns = 0;
  };
  struct Fork {
    BranchId branch{};
    uint64_t position = 0;
  };

  Status WriteNamespace(const std::string& ns);
  Status WriteBranch(BranchId id);
  Status WriteModel(ModelId id);
  Result<Fork> FindFork(BranchId id, const std::vector<PathStep>& path);
  Result<uint64_t> ForkPosition(BranchId from, BranchId id, uint64_t position);
  Status WriteContent(BranchId id, uint64_t begin, uint64_t end);
  Status Write(const PackRecord& record);

  StoreCore* const core_;
  const ForestOptions& options_;
  const ExportProgress& progress_;
  OutputFile* output_ = nullptr;
  BlockDigest digest_;
  ForestInfo info_;
  std::map<ModelId, bool> models_;
  std::map<NodeId, Written> written_;
  uint64_t branches_ = 0;  // As many as there were when it began.
};

Status ForestExport::Write(const PackRecord& record) {
  const std::vector<std::byte> bytes = record.Encode();
  CAIRN_RETURN_IF_ERROR(output_->Write(info_.file_bytes, bytes));
  digest_.Add(bytes);
  info_.file_bytes += bytes.size();
  return Status::Ok();
}

Status ForestExport::WriteModel(ModelId id) {
  if (models_.contains(id)) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const ModelInfo model, core_->lookup().GetModel(id));
  PackRecord record;
  record.Set("record", std::string("model"));
  record.Set("model", static_cast<uint64_t>(id));
  record.Set("spec", Dump(ModelToJson(model.spec)));
  CAIRN_RETURN_IF_ERROR(Write(record));
  models_[id] = true;
  ++info_.models;
  return Status::Ok();
}

// Where the branch may leave the one that is `from`: not where that has a state that this one has
// not, nor within a span.
Result<uint64_t> ForestExport::ForkPosition(BranchId from, BranchId id, uint64_t position) {
  CAIRN_ASSIGN_OR_RETURN(const auto theirs, core_->lookup().StatesIn(from, position, position));
  CAIRN_ASSIGN_OR_RETURN(const auto own, core_->lookup().StatesIn(id, position, position));
  const Lookup::StatePosition none, their = theirs.empty() ? none : theirs[0];
  const Lookup::StatePosition has = own.empty() ? none : own[0];
  if ((!their.sampler || has.sampler) && (!their.metadata || has.metadata)) return position;
  if (position == 0) return position;
  --position;
  CAIRN_ASSIGN_OR_RETURN(const auto spans, core_->lookup().Spans(id, position, position + 1));
  for (const ContentSpan& span : spans) position = std::min(position, span.begin);
  return position;
}

// A branch that changed since it was written may have other tokens on the same nodes.
Result<ForestExport::Fork> ForestExport::FindFork(BranchId id, const std::vector<PathStep>& path) {
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    const auto found = written_.find(step->node);
    if (found == written_.end()) continue;
    const Written& written = found->second;
    const auto now = core_->lookup().Info(written.branch);
    if (!now.ok() && now.status().code() != StatusCode::kNotFound) return now.status();
    if (!now.ok() || now->length != written.length || now->updated_at_ns != written.updated_at_ns) {
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(const uint64_t position,
                           ForkPosition(written.branch, id, std::min(step->end, written.end)));
    if (position != 0) return Fork{written.branch, position};
  }
  return Fork{};
}

Status ForestExport::WriteBranch(BranchId id) {
  const auto info = core_->lookup().Info(id);
  if (info.status().code() == StatusCode::kNotFound) return Status::Ok();  // Dropped meanwhile.
  CAIRN_RETURN_IF_ERROR(info.status());
  CAIRN_ASSIGN_OR_RETURN(const std::vector<PathStep> path, core_->lookup().Path(id));
  CAIRN_ASSIGN_OR_RETURN(const Fork fork, FindFork(id, path));
  CAIRN_RETURN_IF_ERROR(WriteModel(info->model));
  PackRecord record;
  record.Set("record", std::string("branch"));
  record.Set("branch", static_cast<uint64_t>(id));
  record.Set("model", static_cast<uint64_t>(info->model));
  record.Set("name", PackText(info->name));
  record.Set("namespace", PackText(info->ns));
  record.Set("length", info->length);
  record.Set("created_at", info->created_at_ns);
  record.Set("updated_at", info->updated_at_ns);
  record.Set("pinned", info->keep.pinned);
  record.Set("priority", uint64_t{info->keep.priority});
  record.Set("ttl_ns", info->keep.ttl_ns);
  const uint64_t begin = std::min(fork.position, info->length);
  if (begin != 0) {
    record.Set("fork", static_cast<uint64_t>(fork.branch));
    record.Set("position", begin);
  }
  CAIRN_RETURN_IF_ERROR(Write(record));
  CAIRN_RETURN_IF_ERROR(WriteContent(id, begin, info->length));
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo after, core_->lookup().Info(id));
  if (after.length != info->length || after.updated_at_ns != info->updated_at_ns) {
    return Status(StatusCode::kConflict, "branch #" + std::to_string(static_cast<uint64_t>(id)) +
                                             " was changed while it was exported");
  }
  for (const PathStep& step : path) {
    Written& written = written_[step.node];
    if (written.branch != BranchId{} && written.end >= step.end) continue;
    written = {id, step.end, info->length, info->updated_at_ns};
  }
  ++info_.branches;
  info_.tokens += info->length - begin;
  if (progress_) progress_(info_.branches, std::max(info_.branches, branches_));
  return Status::Ok();
}

Status ForestExport::WriteContent(BranchId id, uint64_t begin, uint64_t end) {
  CAIRN_ASSIGN_OR_RETURN(const auto spans, core_->lookup().Spans(id, begin, end));
  for (const ContentSpan& span : spans) {
    PackRecord record;
    record.Set("record", std::string("span"));
    record.Set("begin", span.begin);
    record.Set("end", span.end);
    record.Set("hash_0", span.hash[0]);
    record.Set("hash_1", span.hash[1]);
    record.Set("atomic", span.atomic);
    CAIRN_RETURN_IF_ERROR(Write(record));
  }
  CAIRN_ASSIGN_OR_RETURN(const auto states, core_->lookup().StatesIn(id, begin, end));
  for (const Lookup::StatePosition& at : states) {
    Branch::StateAt state;
    state.position = at.position;
    if (at.sampler) {
      CAIRN_ASSIGN_OR_RETURN(auto found, core_->reads().StateAt(id, at.position, true));
      state.sampler = std::move(found.sampler);
    }
    if (at.metadata) {
      CAIRN_ASSIGN_OR_RETURN(auto found, core_->reads().StateAt(id, at.position, false));
      state.metadata = std::move(found.metadata);
    }
    PackRecord record = StateToRecord(state);
    record.Set("record", std::string("state"));
    CAIRN_RETURN_IF_ERROR(Write(record));
  }
  for (uint64_t at = begin; at < end;) {
    const uint64_t next = std::min(at + kIdsAtOnce, end);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, core_->reads().ReadTokens(id, at, next));
    const auto bytes = std::as_bytes(std::span(ids));
    PackRecord record;
    record.Set("record", std::string("ids"));
    record.Set("begin", at);
    record.Set("ids", PackBytes(bytes.begin(), bytes.end()));
    CAIRN_RETURN_IF_ERROR(Write(record));
    at = next;
  }
  return Status::Ok();
}

Status ForestExport::WriteNamespace(const std::string& ns) {
  std::string cursor;
  do {
    CAIRN_ASSIGN_OR_RETURN(const BranchPage page,
                           core_->lookup().ListBranches(ns, "", kBranchesAtOnce, cursor));
    for (const BranchInfo& info : page.branches) {
      // What an import has not finished is no branch of anybody's yet.
      if (info.name.starts_with(kImportPrefix)) continue;
      CAIRN_RETURN_IF_ERROR(WriteBranch(info.id));
    }
    cursor = page.cursor;
  } while (!cursor.empty());
  return Status::Ok();
}

Result<ForestInfo> ForestExport::Run(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<NamespaceInfo> namespaces, core_->lookup().Namespaces());
  if (options_.ns.has_value()) {
    std::erase_if(namespaces, [&](const NamespaceInfo& one) { return one.name != *options_.ns; });
  }
  for (const NamespaceInfo& one : namespaces) branches_ += one.branches;
  CAIRN_ASSIGN_OR_RETURN(auto files,
                         FilesOfExports(*core_->write_means().options, core_->write_means().world));
  CAIRN_ASSIGN_OR_RETURN(OutputFile output,
                         OutputFile::Create(std::move(files), path, options_.replace));
  output_ = &output;
  PackRecord first;
  first.Set("record", std::string("forest"));
  first.Set("version", kForestVersion);
  CAIRN_RETURN_IF_ERROR(Write(first));
  for (const NamespaceInfo& one : namespaces) CAIRN_RETURN_IF_ERROR(WriteNamespace(one.name));
  CAIRN_RETURN_IF_ERROR(Write(ForestEnd(digest_.Finish())));
  CAIRN_RETURN_IF_ERROR(output.Finish());
  return info_;
}

}  // namespace

Result<ForestInfo> ExportForest(StoreCore* core, const std::string& path,
                                const ForestOptions& options, const ExportProgress& progress) {
  const Lifecycle::Call call(core->write_means().lifecycle);
  CAIRN_RETURN_IF_ERROR(core->lifecycle().CheckUsable());
  return ForestExport(core, options, progress).Run(path);
}

}  // namespace cairn::engine
