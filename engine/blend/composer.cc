// SPDX-License-Identifier: Apache-2.0
#include "engine/blend/composer.h"

#include <algorithm>
#include <deque>

#include "base/core/text.h"
#include "engine/find/chunk_stretches.h"
#include "engine/restore/plan/plan.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/memory/reserved_names.h"

namespace cairn::engine {

Result<Composed> Composer::Compose(const ComposeRequest& request, const BlendOptions& options) {
  const Lifecycle::Call call(deps_.write->lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.write->lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckNotReserved(request.ns));
  if (!options.sources.empty()) {
    return Status(StatusCode::kInvalidArgument, "options.sources: the documents are the sources");
  }
  const auto model = static_cast<uint64_t>(request.model);
  {
    const Committer::Lock lock(deps_.write->mutex());
    if (deps_.write->tree().FindModel(model) == nullptr) {
      return Status(StatusCode::kNotFound,
                    "request.model: " + std::to_string(model) + " is not registered");
    }
  }
  deps_.coalesced->FlushAll();
  CAIRN_ASSIGN_OR_RETURN(const std::vector<ComposeDocument> documents, DocumentsOf(request));
  Composed composed;
  BlendOptions known = options;
  std::deque<PathRun> runs;  // Addresses stay.
  std::vector<PathRun*> read;
  uint64_t at = 0;
  for (const ComposeDocument& document : documents) {
    if (!composed.documents.empty()) at += request.separator.size();
    ComposedDocument placed{.name = document.name};
    CAIRN_ASSIGN_OR_RETURN(PathRun run, Look(request, document, at, &placed, &known.sources));
    CAIRN_RETURN_IF_ERROR(AddSpans(document, run, at, &composed.spans));
    at = placed.end;
    if (at + request.separator.size() + request.question.size() > INT32_MAX) {
      return Status(
          StatusCode::kInvalidArgument,
          "request.documents: more than 2^31 - 1 tokens up to document " + Quoted(document.name));
    }
    composed.documents.push_back(std::move(placed));
    runs.push_back(std::move(run));
    if (runs.back().begin < runs.back().end) read.push_back(&runs.back());
  }
  CAIRN_RETURN_IF_ERROR(ReadRuns(deps_.reader, read, /*memory_only=*/false));
  const auto add = [&](std::span<const TokenId> ids) {
    composed.tokens.insert(composed.tokens.end(), ids.begin(), ids.end());
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    const PathRun& run = runs[i];
    if (run.status.code() == StatusCode::kCorruption) return run.status;
    if (run.ids.size() != run.end - run.begin) {
      return Status(StatusCode::kConflict, "document " + Quoted(composed.documents[i].name) +
                                               " changed while it was read; compose again");
    }
    if (i != 0) add(request.separator);
    add(run.ids);
  }
  if (!request.question.empty() && !runs.empty()) add(request.separator);
  add(request.question);
  if (known.sources.size() > kMaxBlendSources) {
    return Status(StatusCode::kInvalidArgument, "request.documents: their KV is in more than " +
                                                    std::to_string(kMaxBlendSources) + " pieces");
  }
  PrefixQuery query;
  query.model = request.model;
  query.tokens = composed.tokens;
  query.spans = composed.spans;
  query.ns = request.ns;
  query.lease_ns = request.lease_ns;
  CAIRN_ASSIGN_OR_RETURN(composed.plan, planner_.PlanKnown(query, known));
  return composed;
}

// Beginnings of names become names.
Result<std::vector<ComposeDocument>> Composer::DocumentsOf(const ComposeRequest& request) {
  std::vector<ComposeDocument> documents;
  for (const ComposeDocument& one : request.documents) {
    if (one.name.empty() && !one.is_beginning) {
      return Status(StatusCode::kInvalidArgument, "request.documents: one without a name");
    }
    if (!one.is_beginning) {
      documents.push_back(one);
      continue;
    }
    // Unnamed branches come first, and are no documents.
    Tree::NameKey from{std::string(request.ns), one.name, one.name.empty() ? UINT64_MAX : 0};
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Head> heads,
                           deps_.write->access->ReadInOrder(std::move(from), kMaxComposed + 1));
    const size_t before = documents.size();
    for (const Head& head : heads) {
      if (head.ns != request.ns || !head.name.starts_with(one.name)) break;
      documents.push_back(
          {.name = head.name, .is_beginning = false, .begin = one.begin, .end = one.end});
    }
    if (documents.size() > kMaxComposed) break;
    if (documents.size() == before) {
      return Status(StatusCode::kNotFound, "no document's name begins with " + Quoted(one.name));
    }
  }
  if (documents.size() > kMaxComposed) {
    return Status(StatusCode::kInvalidArgument,
                  "request.documents: more than " + std::to_string(kMaxComposed));
  }
  return documents;
}

// Sources are where it has exact KV.
Result<PathRun> Composer::Look(const ComposeRequest& request, const ComposeDocument& document,
                               uint64_t at, ComposedDocument* composed,
                               std::vector<BlendSource>* sources) {
  const std::string name = "document " + Quoted(document.name);
  Committer::Lock lock(deps_.write->mutex());
  CAIRN_ASSIGN_OR_RETURN(const Head* const head,
                         deps_.write->access->LoadNamed(request.ns, document.name, &lock));
  if (head == nullptr) return Status(StatusCode::kNotFound, name + " does not exist");
  if (head->model != static_cast<uint64_t>(request.model)) {
    return Status(StatusCode::kModelMismatch, name + " is of another model");
  }
  CAIRN_ASSIGN_OR_RETURN(const Range range, RangeOf(document.begin, document.end,
                                                    head->lengths[kTokenLane], name.c_str()));
  composed->branch = BranchId{head->id};
  composed->begin = at;
  composed->end = at + (range.end - range.begin);
  PathRun run{.node = head->node, .begin = range.begin, .end = range.end};
  if (range.begin == range.end) return run;
  const Tree& tree = deps_.write->tree();
  run.spans = CollectSpans(tree, *head, range.begin, range.end);
  for (const ChunkStretch& exact :
       ExactStretches(tree, *tree.FindNode(head->node), range.begin, range.end)) {
    sources->push_back({.branch = composed->branch,
                        .begin = exact.begin,
                        .end = exact.end,
                        .at = at + (exact.begin - range.begin)});
  }
  return run;
}

// kInvalidArgument: the document is cut where content begins before, or must not end.
Status Composer::AddSpans(const ComposeDocument& document, const PathRun& run, uint64_t at,
                          std::vector<ContentSpan>* spans) {
  for (ContentSpan span : run.spans) {
    if (span.begin < run.begin || (span.atomic && span.end > run.end)) {
      return Status(StatusCode::kInvalidArgument,
                    "document " + Quoted(document.name) + ": [" + std::to_string(run.begin) + ", " +
                        std::to_string(run.end) + ") cuts the content at [" +
                        std::to_string(span.begin) + ", " + std::to_string(span.end) + ")");
    }
    span.begin = span.begin - run.begin + at;
    span.end = std::min(span.end, run.end) - run.begin + at;
    spans->push_back(span);
  }
  return Status::Ok();
}

}  // namespace cairn::engine
