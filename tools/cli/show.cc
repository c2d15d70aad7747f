// SPDX-License-Identifier: Apache-2.0
//
// show: everything about one branch.
#include <algorithm>
#include <cstdio>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"
#include "tools/cli/seen_branch.h"

namespace cairn::cli {

namespace {

using State = Result<Branch::StateAt>;

struct Shown {
  SeenBranch branch;
  ModelInfo model;
  std::vector<KvHole> evicted;
  std::vector<PathStep> path;
  std::vector<ContentSpan> spans;
  State sampler, metadata;
};

// Absence is an answer, damage is not.
Status CheckState(const State& state) {
  return state.status().code() == StatusCode::kNotFound ? Status::Ok() : state.status();
}

Result<Shown> LookAt(const Store& store, const Branch& branch) {
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
  CAIRN_ASSIGN_OR_RETURN(SeenBranch seen, SeeBranch(branch, info));
  CAIRN_ASSIGN_OR_RETURN(ModelInfo model, store.GetModel(info.model));
  CAIRN_ASSIGN_OR_RETURN(std::vector<KvHole> evicted, branch.EvictedKv());
  CAIRN_ASSIGN_OR_RETURN(std::vector<PathStep> path, branch.Path());
  CAIRN_ASSIGN_OR_RETURN(std::vector<ContentSpan> spans, branch.Spans(0, info.length));
  State sampler = branch.SamplerAt(info.length);
  CAIRN_RETURN_IF_ERROR(CheckState(sampler));
  State metadata = branch.MetadataAt(info.length);
  CAIRN_RETURN_IF_ERROR(CheckState(metadata));
  return Shown{std::move(seen),  std::move(model),   std::move(evicted), std::move(path),
               std::move(spans), std::move(sampler), std::move(metadata)};
}

// --- As JSON

Json StateToJson(const State& state) {
  if (!state.ok()) return nullptr;
  Json json = {{"position", state->position}};
  if (state->sampler.has_value()) json.update(ToJson(*state->sampler));
  if (state->metadata.has_value()) json.update(ToJson(*state->metadata));
  return json;
}

Json ShownToJson(const Shown& shown) {
  Json json = ToJson(shown.branch);
  json["evicted_kv"] = Json::array();
  for (const KvHole& hole : shown.evicted) {
    json["evicted_kv"].push_back({{"group", hole.group}, {"begin", hole.begin}, {"end", hole.end}});
  }
  json["model_name"] = Printable(shown.model.spec.identity.name);
  json["lossy"] = Json::array();
  for (const LayerGroup& group : shown.model.spec.groups) {
    const std::string loss = LossText(group);
    if (!loss.empty()) json["lossy"].push_back(group.name + loss);
  }
  json["path"] = Json::array();
  for (const PathStep& step : shown.path) {
    json["path"].push_back({{"node", static_cast<uint64_t>(step.node)},
                            {"parent", static_cast<uint64_t>(step.parent)},
                            {"begin", step.begin},
                            {"end", step.end},
                            {"owner", static_cast<uint64_t>(step.owner)}});
  }
  json["spans"] = Json::array();
  for (const ContentSpan& span : shown.spans) json["spans"].push_back(ToJson(span));
  json["sampler"] = StateToJson(shown.sampler);
  json["metadata"] = StateToJson(shown.metadata);
  return json;
}

// --- In words

std::string Cut(std::string text) {
  constexpr size_t kMax = 400;
  if (text.size() > kMax) text = text.substr(0, kMax) + "... (--json shows all)";
  return text;
}

std::string RangeText(uint64_t begin, uint64_t end) {
  return '[' + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

// "attention up to 500, window up to 480"
std::string KvLengthsText(const Shown& shown) {
  std::string text;
  for (size_t i = 0; i < shown.branch.kv_lengths.size(); ++i) {
    text += (i == 0 ? "" : ", ") + shown.model.spec.groups[i].name + " up to " +
            std::to_string(shown.branch.kv_lengths[i]);
  }
  return text;
}

std::string HolesText(const Shown& shown) {
  std::string text;
  for (size_t i = 0; i < shown.evicted.size(); ++i) {
    const KvHole& hole = shown.evicted[i];
    const bool same_group = i > 0 && shown.evicted[i - 1].group == hole.group;
    text += i == 0 ? "" : ", ";
    text += (same_group ? "" : shown.model.spec.groups[hole.group].name + " ") +
            RangeText(hole.begin, hole.end);
  }
  return text;
}

std::string SpanLine(const Json& span) {
  return RangeText(span["begin"], span["end"]) + " hash " + span["hash"].get<std::string>() +
         (span["atomic"] ? ", atomic" : "");
}

std::string PlainText(const Json& value) {
  if (value.is_string()) return value;
  if (!value.is_number_float()) return value.dump();
  char text[32];
  std::snprintf(text, sizeof text, "%g", value.get<double>());
  return text;
}

// "at 4: philox, seed 42, offset 7, temperature 0.5, top_p 1": each field by its name.
std::string SamplerText(const Json& sampler) {
  std::string text = "at " + std::to_string(sampler["position"].get<uint64_t>()) + ": " +
                     sampler["generator"].get<std::string>();
  for (const auto& [name, value] : sampler.items()) {
    if (name == "position" || name == "generator") continue;
    std::string word = name;
    std::replace(word.begin(), word.end(), '_', ' ');
    text += ", " + word + " " + PlainText(value);
  }
  return text;
}

// Metadata is shown as the value that the program stored.
std::string MetadataText(const Json& metadata) {
  const bool known = metadata.contains("value");
  return "at " + std::to_string(metadata["position"].get<uint64_t>()) + ": " +
         metadata["content_type"].get<std::string>() + " " +
         (known ? metadata["value"].dump(-1, ' ', false, Json::error_handler_t::replace)
                : metadata["hex"].get<std::string>());
}

std::string StepText(const PathStep& step) {
  std::string text = RangeText(step.begin, step.end) + "  node " +
                     std::to_string(static_cast<uint64_t>(step.node));
  if (step.parent != NodeId{}) {
    text += ", leaves node " + std::to_string(static_cast<uint64_t>(step.parent));
  }
  if (step.owner != BranchId{}) {
    text += ", extended by " + IdText(step.owner);
  }
  return text;
}

void Print(const Shown& shown) {
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-10s %s\n", name, Printable(Cut(value)).c_str());
  };
  const SeenBranch& branch = shown.branch;
  line("branch", branch.name.empty() ? "(unnamed)" : BranchLabel(branch));
  if (!branch.ns.empty()) line("namespace", NamespaceText(branch.ns));
  line("id", IdText(branch.id));
  line("model", shown.model.spec.identity.name + " (model " +
                    std::to_string(static_cast<uint64_t>(shown.model.id)) + ")");
  line("tokens", std::to_string(branch.length));
  if (branch.restorable.has_value()) {
    line("kv", KvLengthsText(shown));
    if (!shown.evicted.empty()) line("kv missing", HolesText(shown));
    line("restorable", "up to " + std::to_string(*branch.restorable));
  }
  for (const LayerGroup& group : shown.model.spec.groups) {
    const std::string loss = LossText(group);
    if (!loss.empty()) line("lossy", group.name + loss);
  }
  line("keep", KeepText(branch.keep));
  line("created", TimeText(branch.created_at_ns));
  line("updated", TimeText(branch.updated_at_ns));
  line("used", TimeText(branch.used_at_ns));
  std::printf("path\n");
  for (const PathStep& step : shown.path) std::printf("  %s\n", StepText(step).c_str());
  for (const ContentSpan& span : shown.spans) line("span", SpanLine(ToJson(span)));
  if (shown.sampler.ok()) line("sampler", SamplerText(StateToJson(shown.sampler)));
  if (shown.metadata.ok()) line("metadata", MetadataText(StateToJson(shown.metadata)));
}

Result<int> RunShow(const BranchArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, FindBranch(store, arguments.branch, arguments.ns));
  CAIRN_ASSIGN_OR_RETURN(const Shown shown, LookAt(store, branch));
  if (json) {
    PrintJson(ShownToJson(shown));
  } else {
    Print(shown);
  }
  return kExitOk;
}

}  // namespace

void AddShowCommand(CLI::App& app, Session& session) {
  const auto show = std::make_shared<BranchArguments>();
  CLI::App* command = AddCommand(
      app, session, "show", Access::kLooks,
      "Everything about one branch\n\n"
      "Its path through the tree, content spans, the newest sampler state and metadata,\n"
      "how it is kept, and up to where its KV can be restored. \"kv missing\" is what\n"
      "was evicted and, of groups with a retention rule, what was never given.",
      "  cairn show state chat-42\n"
      "  cairn show state '#17' --json",
      show, RunShow);
  AddBranchArguments(command, show.get());
}

}  // namespace cairn::cli
