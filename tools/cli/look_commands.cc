// SPDX-License-Identifier: Apache-2.0
//
// ls, show, cat, models: what is in a store.
#include <algorithm>
#include <cstdio>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace cairn::cli {

namespace {

// --- ls

struct LsArguments {
  std::string store, ns, prefix, cursor;
  bool one_namespace = false;
  size_t limit = 1000;
};

// A cursor as the store gives it may hold any byte, and a page may begin in a later namespace:
// "<namespace>/<store's cursor>", both with everything but letters and digits as %NN.
std::string EscapeCursor(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      result += c;
    } else {
      char escape[4];
      std::snprintf(escape, sizeof escape, "%%%02x", static_cast<unsigned char>(c));
      result += escape;
    }
  }
  return result;
}

std::string UnescapeCursor(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      result +=
          static_cast<char>(std::strtoul(std::string(text.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

Result<BranchPage> ListOne(const Store& store, const LsArguments& arguments) {
  BranchPage page;
  std::string ns = arguments.ns;
  std::string within;
  if (!arguments.cursor.empty()) {
    const size_t slash = arguments.cursor.find('/');
    if (slash == std::string::npos) {
      return Status(StatusCode::kInvalidArgument,
                    "--cursor \"" + Excerpt(arguments.cursor) + "\" did not come from cairn ls");
    }
    ns = UnescapeCursor(std::string_view(arguments.cursor).substr(0, slash));
    within = UnescapeCursor(std::string_view(arguments.cursor).substr(slash + 1));
  }
  std::vector<std::string> names{ns};
  if (!arguments.one_namespace) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<NamespaceInfo> namespaces, store.Namespaces());
    for (const NamespaceInfo& one : namespaces) {
      if (one.name > ns) names.push_back(one.name);
    }
  }
  for (const std::string& name : names) {
    if (page.branches.size() == arguments.limit) {
      page.cursor = EscapeCursor(name) + "/";
      return page;
    }
    CAIRN_ASSIGN_OR_RETURN(
        BranchPage part,
        store.ListBranches(name, arguments.prefix, arguments.limit - page.branches.size(), within));
    std::move(part.branches.begin(), part.branches.end(), std::back_inserter(page.branches));
    if (!part.cursor.empty()) {
      page.cursor = EscapeCursor(name) + "/" + EscapeCursor(part.cursor);
      return page;
    }
    within.clear();
  }
  return page;
}

std::string ModelName(const Store& store, ModelId id) {
  const auto model = store.GetModel(id);
  return model.ok() ? Printable(model->spec.identity.name) : "?";
}

// The group that lags most behind the tokens; "-" for models without KV.
std::string KvText(const BranchInfo& info) {
  if (info.kv_lengths.empty()) return "-";
  return std::to_string(*std::min_element(info.kv_lengths.begin(), info.kv_lengths.end()));
}

Result<int> RunLs(const LsArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const BranchPage page, ListOne(store, arguments));
  if (json) {
    Json branches = Json::array();
    for (const BranchInfo& info : page.branches) branches.push_back(ToJson(info));
    PrintJson({{"branches", branches}, {"cursor", page.cursor}});
    return kExitOk;
  }
  TextTable table({"BRANCH", "ID", "TOKENS", "KV", "MODEL", "UPDATED"}, {1, 2, 3});
  for (const BranchInfo& info : page.branches) {
    table.Add({BranchLabel(info), std::to_string(static_cast<uint64_t>(info.id)),
               std::to_string(info.length), KvText(info), ModelName(store, info.model),
               TimeText(info.updated_at_ns)});
  }
  std::printf("%s", table.ToString().c_str());
  if (!page.cursor.empty()) std::printf("more: --cursor %s\n", page.cursor.c_str());
  return kExitOk;
}

// --- show

Json StateToJson(const Result<Branch::StateAt>& state) {
  if (!state.ok()) return nullptr;
  Json json = {{"position", state->position}};
  if (state->sampler.has_value()) json.update(ToJson(*state->sampler));
  if (state->metadata.has_value()) json.update(ToJson(*state->metadata));
  return json;
}

// Absence is an answer, damage is not.
Status CheckState(const Result<Branch::StateAt>& state) {
  return state.status().code() == StatusCode::kNotFound ? Status::Ok() : state.status();
}

// Which planes do not come back from tables as they were appended: ", k sealed as int8".
std::string LossText(const LayerGroup& group) {
  std::string text;
  for (const Plane& plane : group.planes) {
    if (plane.sealed_as == SealedAs::kLossless) continue;
    text += ", " + plane.name + " sealed as " + SealedAsName(plane.sealed_as);
  }
  return text;
}

void PrintShow(const Json& show) {
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-10s %s\n", name, Printable(value).c_str());
  };
  const auto compact = [](const Json& value) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    constexpr size_t kMax = 400;
    if (text.size() > kMax) text = text.substr(0, kMax) + "... (--json shows all)";
    return text;
  };
  const std::string name = show["name"], ns = show["ns"];
  line("branch", name.empty() ? "(unnamed)" : name);
  if (!ns.empty()) line("namespace", ns);
  line("id", "#" + std::to_string(show["id"].get<uint64_t>()));
  line("model", show["model_name"].get<std::string>() + " (model " +
                    std::to_string(show["model"].get<uint64_t>()) + ")");
  line("tokens", std::to_string(show["length"].get<uint64_t>()));
  if (!show["kv_lengths"].empty()) line("kv", compact(show["kv_lengths"]));
  if (show.contains("restorable")) {
    line("restorable", "up to " + std::to_string(show["restorable"].get<uint64_t>()));
  }
  if (!show["evicted_kv"].empty()) line("evicted", compact(show["evicted_kv"]));
  for (const Json& loss : show["lossy"]) line("lossy", loss);
  line("created", TimeText(show["created_at_ns"]));
  line("updated", TimeText(show["updated_at_ns"]));
  std::printf("path\n");
  for (const Json& step : show["path"]) {
    const uint64_t owner = step["owner"], parent = step["parent"];
    std::printf("  [%llu, %llu)  node %llu%s%s\n",
                static_cast<unsigned long long>(step["begin"].get<uint64_t>()),
                static_cast<unsigned long long>(step["end"].get<uint64_t>()),
                static_cast<unsigned long long>(step["node"].get<uint64_t>()),
                parent == 0 ? "" : (", leaves node " + std::to_string(parent)).c_str(),
                owner == 0 ? "" : (", extended by #" + std::to_string(owner)).c_str());
  }
  for (const Json& span : show["spans"]) line("span", compact(span));
  if (!show["sampler"].is_null()) line("sampler", compact(show["sampler"]));
  if (!show["metadata"].is_null()) line("metadata", compact(show["metadata"]));
}

Result<int> RunShow(const BranchArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, FindBranch(store, arguments.branch, arguments.ns));
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
  CAIRN_ASSIGN_OR_RETURN(const std::vector<PathStep> path, branch.Path());
  CAIRN_ASSIGN_OR_RETURN(const std::vector<ContentSpan> spans, branch.Spans(0, info.length));
  const auto sampler = branch.SamplerAt(info.length);
  CAIRN_RETURN_IF_ERROR(CheckState(sampler));
  const auto metadata = branch.MetadataAt(info.length);
  CAIRN_RETURN_IF_ERROR(CheckState(metadata));

  CAIRN_ASSIGN_OR_RETURN(const std::vector<KvHole> evicted, branch.EvictedKv());
  Json show = ToJson(info);
  show["evicted_kv"] = Json::array();
  for (const KvHole& hole : evicted) {
    show["evicted_kv"].push_back({{"group", hole.group}, {"begin", hole.begin}, {"end", hole.end}});
  }
  show["model_name"] = ModelName(store, info.model);
  show["lossy"] = Json::array();
  bool has_rules = false;
  for (const ModelInfo& model : store.Models()) {
    if (model.id != info.model) continue;
    for (const LayerGroup& group : model.spec.groups) {
      const std::string loss = LossText(group);
      if (!loss.empty()) show["lossy"].push_back(group.name + loss);
      has_rules |= group.retention.kind != Retention::kAll;
    }
  }
  if (has_rules) {
    CAIRN_ASSIGN_OR_RETURN(show["restorable"], branch.RestorableLength());
  }
  show["path"] = Json::array();
  for (const PathStep& step : path) {
    show["path"].push_back({{"node", static_cast<uint64_t>(step.node)},
                            {"parent", static_cast<uint64_t>(step.parent)},
                            {"begin", step.begin},
                            {"end", step.end},
                            {"owner", static_cast<uint64_t>(step.owner)}});
  }
  show["spans"] = Json::array();
  for (const ContentSpan& span : spans) show["spans"].push_back(ToJson(span));
  show["sampler"] = StateToJson(sampler);
  show["metadata"] = StateToJson(metadata);
  if (json) {
    PrintJson(show);
  } else {
    PrintShow(show);
  }
  return kExitOk;
}

// --- cat

struct CatArguments : BranchArguments {
  uint64_t begin = 0;
  std::optional<uint64_t> end;
};

Result<int> RunCat(const CatArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, FindBranch(store, arguments.branch, arguments.ns));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t length, branch.length());
  const uint64_t end = arguments.end.value_or(length);
  if (arguments.begin > end || end > length) {
    return Status(StatusCode::kInvalidArgument,
                  "--begin " + std::to_string(arguments.begin) + " --end " + std::to_string(end) +
                      ": the branch has positions 0 to " + std::to_string(length));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                         branch.ReadTokens(arguments.begin, end));
  if (json) {
    PrintJsonLine({{"begin", arguments.begin}, {"end", end}, {"tokens", tokens}});
    return kExitOk;
  }
  for (size_t i = 0; i < tokens.size(); ++i) std::printf(i == 0 ? "%u" : " %u", tokens[i]);
  std::printf("\n");
  return kExitOk;
}

// --- models

struct ModelsArguments {
  std::string store;
};

Result<int> RunModels(const ModelsArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  if (json) {
    Json models = Json::array();
    for (const ModelInfo& model : store.Models()) models.push_back(ToJson(model));
    PrintJson({{"models", models}});
    return kExitOk;
  }
  TextTable table({"ID", "MODEL", "REVISION", "VARIANT", "KV A TOKEN", "GROUPS"}, {0, 4});
  for (const ModelInfo& model : store.Models()) {
    std::string groups;
    for (const LayerGroup& group : model.spec.groups) {
      if (!groups.empty()) groups += ", ";
      groups += Printable(group.name) + " (" + Plural(group.layers, "layer") + ", " +
                std::string(RetentionName(group.retention.kind)) + Printable(LossText(group)) + ")";
    }
    table.Add({std::to_string(static_cast<uint64_t>(model.id)), Printable(model.spec.identity.name),
               Printable(model.spec.identity.revision), Printable(model.spec.variant.name),
               BytesText(model.spec.token_bytes()), groups.empty() ? "none: tokens only" : groups});
  }
  std::printf("%s", table.ToString().c_str());
  return kExitOk;
}

}  // namespace

void AddLookCommands(CLI::App& app, Session& session) {
  const auto ls = std::make_shared<LsArguments>();
  CLI::App* command = AddCommand(app, session, "ls",
                                 "List branches, by namespace and name\n\n"
                                 "KV is up to where the layer group that lags most has its KV.",
                                 "  cairn ls state\n"
                                 "  cairn ls state --ns tenant-a --prefix chat- --limit 20",
                                 ls, RunLs);
  AddStoreArgument(command, &ls->store);
  command->add_option_function<std::string>(
      "--ns",
      [ls](const std::string& ns) {
        ls->ns = ns;
        ls->one_namespace = true;
      },
      "Only this namespace (\"\" is the default one)");
  command->add_option("--prefix", ls->prefix, "Only names that begin with this");
  AddNumberOption(command, "--limit", &ls->limit, "How many at most")
      ->check(CLI::Range(size_t{1}, size_t{1} << 40))
      ->capture_default_str();
  command->add_option("--cursor", ls->cursor, "Go on where an earlier listing ended");

  const auto show = std::make_shared<BranchArguments>();
  command =
      AddCommand(app, session, "show",
                 "Everything about one branch\n\n"
                 "Its path through the tree, content spans, and the newest sampler state and\n"
                 "metadata; for a hybrid model, up to where it can be restored.",
                 "  cairn show state chat-42\n"
                 "  cairn show state '#17' --json",
                 show, RunShow);
  AddBranchArguments(command, show.get());

  const auto cat = std::make_shared<CatArguments>();
  command = AddCommand(app, session, "cat", "Print the token ids of a branch, on one line",
                       "  cairn cat state chat-42\n"
                       "  cairn cat state chat-42 --begin 100 --end 200 --json",
                       cat, RunCat);
  AddBranchArguments(command, cat.get());
  AddNumberOption(command, "--begin", &cat->begin, "First position")->capture_default_str();
  AddNumberOption(command, "--end", &cat->end,
                  "Position behind the last; the branch's length if absent");

  const auto models = std::make_shared<ModelsArguments>();
  command = AddCommand(app, session, "models", "List the registered models",
                       "  cairn models state\n"
                       "  cairn models state --json | jq '.models[].token_bytes'",
                       models, RunModels);
  AddStoreArgument(command, &models->store);
}

}  // namespace cairn::cli
