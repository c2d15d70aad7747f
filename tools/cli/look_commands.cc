// SPDX-License-Identifier: Apache-2.0
//
// ls, cat, models: what is in a store.
#include <algorithm>
#include <cstdio>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"
#include "tools/cli/seen_branch.h"
#include "tools/cli/seen_objects.h"

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
  CAIRN_ASSIGN_OR_RETURN(std::string ns, ReadNamespace(arguments.ns));
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

// Beside the first branches of all names.
Result<SeenObjects> ObjectsOf(const Store& store, const LsArguments& arguments) {
  if (!arguments.prefix.empty() || !arguments.cursor.empty()) return SeenObjects();
  CAIRN_ASSIGN_OR_RETURN(SeenObjects seen, SeeObjects(store));
  if (!arguments.one_namespace) return seen;
  CAIRN_ASSIGN_OR_RETURN(const std::string ns, ReadNamespace(arguments.ns));
  SeenObjects of_it;
  for (NamespaceInfo& one : seen.spaces) {
    if (one.name != ns) continue;
    of_it.count = one.branches;
    of_it.spaces.push_back(std::move(one));
  }
  return of_it;
}

Result<int> RunLs(const LsArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const BranchPage page, ListOne(store, arguments));
  CAIRN_ASSIGN_OR_RETURN(const SeenObjects objects, ObjectsOf(store, arguments));
  Json branches = Json::array();
  TextTable table({"BRANCH", "ID", "TOKENS", "KV", "MODEL", "UPDATED"}, {1, 2, 3});
  std::string unnamed;
  for (const BranchInfo& info : page.branches) {
    CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.GetBranch(info.id));
    CAIRN_ASSIGN_OR_RETURN(const SeenBranch seen, SeeBranch(branch, info));
    CAIRN_ASSIGN_OR_RETURN(const ModelInfo model, store.GetModel(info.model));
    branches.push_back(ToJson(seen));
    table.Add({BranchLabel(info), IdText(info.id), std::to_string(info.length), KvText(seen),
               Printable(model.spec.identity.name), TimeText(info.updated_at_ns)});
    if (info.name.empty() && unnamed.empty()) unnamed = BranchLabel(info);
  }
  if (json) {
    PrintJson({{"branches", branches}, {"cursor", page.cursor}, {"objects", ToJson(objects)}});
    return kExitOk;
  }
  if (!page.branches.empty() || objects.count == 0) std::printf("%s", table.ToString().c_str());
  if (!unnamed.empty()) {
    std::printf("unnamed ones by id: cairn show %s %s\n", ShellWord(arguments.store).c_str(),
                ShellWord(unnamed).c_str());
  }
  if (!page.cursor.empty()) std::printf("more: --cursor %s\n", page.cursor.c_str());
  if (objects.count == 0) return kExitOk;
  std::printf("%sobjects, by their own namespaces (cairn objects ls lists them):\n%s",
              page.branches.empty() ? "" : "\n", TableText(objects).c_str());
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
                std::string(RetentionName(group.retention.kind)) +
                Printable(HeldText(model.spec, group) + RotaryText(group) + LossText(group)) + ")";
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
  CLI::App* command = AddCommand(
      app, session, "ls", Access::kLooks,
      "List branches, by namespace and name\n\n"
      "KV is up to where it can be restored. \"480 of 500\": more was given, but some of\n"
      "it was evicted, or a layer group lags; cairn show tells which. Objects follow by\n"
      "their namespaces, which are others than those of branches.",
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

  const auto cat = std::make_shared<CatArguments>();
  command = AddCommand(app, session, "cat", Access::kLooks,
                       "Print the token ids of a branch, on one line",
                       "  cairn cat state chat-42\n"
                       "  cairn cat state chat-42 --begin 100 --end 200 --json",
                       cat, RunCat);
  AddBranchArguments(command, cat.get());
  AddNumberOption(command, "--begin", &cat->begin, "First position")->capture_default_str();
  AddNumberOption(command, "--end", &cat->end,
                  "Position behind the last; the branch's length if absent");

  const auto models = std::make_shared<ModelsArguments>();
  command = AddCommand(app, session, "models", Access::kLooks, "List the registered models",
                       "  cairn models state\n"
                       "  cairn models state --json | jq '.models[].token_bytes'",
                       models, RunModels);
  AddStoreArgument(command, &models->store);
}

}  // namespace cairn::cli
