// SPDX-License-Identifier: Apache-2.0
//
// du: who needs how many bytes.
#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/forest_content.h"
#include "tools/cli/names.h"
#include "tools/cli/seen_objects.h"

namespace cairn::cli {

namespace {

struct DuArguments {
  std::string store;
  std::optional<std::string> ns;
  size_t limit = 20;
};

struct BranchUse {
  BranchInfo info;
  BranchBytes bytes;
};
struct NamespaceUse {
  uint64_t branches = 0;
  BranchBytes bytes;
};
struct Uses {
  std::vector<BranchUse> branches;  // The one with the most bytes of its own first.
  std::map<std::string, NamespaceUse> namespaces;
  uint64_t total_bytes = 0;
};

Result<Uses> CountUses(const Store& store) {
  Uses uses;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Forest> forests, LoadForests(store, {}));
  for (const Forest& forest : forests) {
    CAIRN_ASSIGN_OR_RETURN(const ForestContent content, ReadContent(store, forest));
    const auto by_branch = CountBytes(forest, content);
    const auto add = [&](const SeenBranch& head) {
      const auto found = by_branch.find(static_cast<uint64_t>(head.id));
      uses.branches.push_back({head, found == by_branch.end() ? BranchBytes() : found->second});
      ++uses.namespaces[head.ns].branches;
    };
    for (const auto& [id, node] : forest.nodes) {
      for (const SeenBranch& head : node.heads) add(head);
    }
    for (const SeenBranch& head : forest.empty) add(head);
    for (const auto& [ns, bytes] : CountNamespaceBytes(forest, content)) {
      uses.namespaces[ns].bytes.own += bytes.own;
      uses.namespaces[ns].bytes.shared += bytes.shared;
    }
    uses.total_bytes += CountAllBytes(forest, content);
  }
  std::sort(uses.branches.begin(), uses.branches.end(), [](const BranchUse& a, const BranchUse& b) {
    return std::tuple(b.bytes.own, b.bytes.shared, static_cast<uint64_t>(a.info.id)) <
           std::tuple(a.bytes.own, a.bytes.shared, static_cast<uint64_t>(b.info.id));
  });
  return uses;
}

void PrintUses(const Uses& uses, const SeenObjects& objects, size_t left_out) {
  TextTable spaces({"NAMESPACE", "BRANCHES", "OWN", "SHARED"}, {1, 2, 3});
  for (const auto& [ns, use] : uses.namespaces) {
    spaces.Add({NamespaceText(ns), std::to_string(use.branches), BytesText(use.bytes.own),
                BytesText(use.bytes.shared)});
  }
  TextTable branches({"BRANCH", "ID", "TOKENS", "OWN", "SHARED"}, {1, 2, 3, 4});
  for (const BranchUse& use : uses.branches) {
    branches.Add({BranchLabel(use.info), IdText(use.info.id), std::to_string(use.info.length),
                  BytesText(use.bytes.own), BytesText(use.bytes.shared)});
  }
  if (uses.branches.empty()) {
    std::printf("no branches\n");
  } else {
    std::printf("%s\n%s", spaces.ToString().c_str(), branches.ToString().c_str());
    if (left_out > 0)
      std::printf("and %s; --limit shows more\n", Plural(left_out, "branch").c_str());
    std::printf("\n%s in all, each byte once\n", BytesText(uses.total_bytes).c_str());
  }
  if (objects.count == 0) return;
  std::printf("\n%s besides, by namespace:\n%s", Plural(objects.count, "object").c_str(),
              TableText(objects).c_str());
}

Result<int> RunDu(const DuArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(Uses uses, CountUses(store));
  SeenObjects objects;
  if (arguments.ns.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(const std::string ns, ReadNamespace(*arguments.ns));
    std::erase_if(uses.branches, [&](const BranchUse& use) { return use.info.ns != ns; });
    std::erase_if(uses.namespaces, [&](const auto& one) { return one.first != ns; });
    const BranchBytes& bytes = uses.namespaces[ns].bytes;
    uses.total_bytes = bytes.own + bytes.shared;
  } else {
    CAIRN_ASSIGN_OR_RETURN(objects, SeeObjects(store));
  }
  const size_t count = std::min(uses.branches.size(), arguments.limit);
  const size_t left_out = uses.branches.size() - count;
  uses.branches.resize(count);
  if (!json) {
    PrintUses(uses, objects, left_out);
    return kExitOk;
  }
  Json namespaces = Json::array(), branches = Json::array();
  for (const auto& [ns, use] : uses.namespaces) {
    namespaces.push_back({{"name", ns},
                          {"branches", use.branches},
                          {"own_bytes", use.bytes.own},
                          {"shared_bytes", use.bytes.shared}});
  }
  for (const BranchUse& use : uses.branches) {
    branches.push_back({{"id", static_cast<uint64_t>(use.info.id)},
                        {"name", use.info.name},
                        {"ns", use.info.ns},
                        {"length", use.info.length},
                        {"own_bytes", use.bytes.own},
                        {"shared_bytes", use.bytes.shared}});
  }
  PrintJson({{"namespaces", namespaces},
             {"branches", branches},
             {"left_out", left_out},
             {"total_bytes", uses.total_bytes},
             {"objects", ToJson(objects)}});
  return kExitOk;
}

}  // namespace

void AddDuCommand(CLI::App& app, Session& session) {
  const auto du = std::make_shared<DuArguments>();
  CLI::App* command = AddCommand(
      app, session, "du", Access::kLooks,
      "Who needs how many bytes: own and shared, by namespace and branch\n\n"
      "A branch's own bytes are needed by no other branch: they are given back in the background\n"
      "when it is dropped. Its shared bytes are needed by others as well, and stay. Those of a\n"
      "namespace likewise: own are needed by its branches alone. Counted are token ids and KV, as\n"
      "the cap of a namespace counts them: what is packed into tables as it lies there, what is\n"
      "still in the log raw. cairn stat tells what the files take.",
      "  cairn du state\n"
      "  cairn du state --ns tenant-a --limit 5\n"
      "  cairn du state --json | jq '.namespaces[] | {name, own_bytes}'",
      du, RunDu);
  AddStoreArgument(command, &du->store);
  command->add_option("--ns", du->ns, "Only this namespace (\"\" is the default one)");
  AddNumberOption(command, "--limit", &du->limit, "How many branches at most, the largest first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

}  // namespace cairn::cli
