// SPDX-License-Identifier: Apache-2.0
//
// keep, namespaces: what goes when room is needed, and when.
#include <cstdio>
#include <map>
#include <optional>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"
#include "tools/cli/seen_branch.h"

namespace cairn::cli {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

void AddTtlOption(CLI::App* command, std::optional<uint64_t>* seconds, const std::string& text) {
  command->add_option("--ttl", *seconds, text + ": 90s, 30min, 12h, 7d; 0s: none")
      ->transform(CLI::AsNumberWithUnit(
          std::map<std::string, uint64_t>{{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}},
          CLI::AsNumberWithUnit::UNIT_REQUIRED));
}

// ---------------------------------------------------------------- keep

struct KeepArguments : BranchArguments {
  Durability durability = Durability::kProcess;
  bool pin = false, unpin = false;
  std::optional<uint32_t> priority;
  std::optional<uint64_t> ttl_seconds;
  bool changes() const { return pin || unpin || priority || ttl_seconds; }
};

Result<int> RunKeep(const KeepArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(Store store, arguments.changes() ? OpenForWriting(arguments.store)
                                                          : OpenForReading(arguments.store));
  const auto run = [&]() -> Result<int> {
    CAIRN_ASSIGN_OR_RETURN(Branch branch, FindBranch(store, arguments.branch, arguments.ns));
    CAIRN_ASSIGN_OR_RETURN(BranchInfo info, branch.Info());
    Keep keep = info.keep;
    if (arguments.pin || arguments.unpin) keep.pinned = arguments.pin;
    if (arguments.priority) keep.priority = static_cast<uint8_t>(*arguments.priority);
    if (arguments.ttl_seconds) keep.ttl_ns = *arguments.ttl_seconds * kSecondNs;
    if (keep != info.keep) {
      CAIRN_RETURN_IF_ERROR(branch.SetKeep(keep, arguments.durability));
      CAIRN_ASSIGN_OR_RETURN(info, branch.Info());
    }
    if (json) {
      PrintJson(ToJson(info));
    } else {
      std::printf("%s: %s\n", LabelWithId(info).c_str(), KeepText(info.keep).c_str());
    }
    return kExitOk;
  };
  return CloseAfter(&store, run());
}

// ---------------------------------------------------------------- namespaces

struct NamespaceArguments {
  std::string store;
  std::optional<std::string> ns;
  std::optional<uint64_t> max_bytes, ttl_seconds;
  std::string evict, persist, index;
  bool changes() const {
    return max_bytes || ttl_seconds || !evict.empty() || !persist.empty() || !index.empty();
  }
};

Json NamespaceToJson(const NamespaceInfo& info, bool listed) {
  const NamespacePolicy& policy = info.policy;
  Json json = {{"name", info.name},       {"branches", info.branches},
               {"bytes", nullptr},        {"max_bytes", nullptr},
               {"evict", nullptr},        {"persist", NameIn(kPersists, policy.persist)},
               {"ttl_ns", policy.ttl_ns}, {"index", NameIn(kIndexes, policy.index)}};
  if (listed) json["bytes"] = info.bytes;
  if (policy.max_bytes != UINT64_MAX) json["max_bytes"] = policy.max_bytes;
  if (policy.evict) json["evict"] = NameIn(kEvicts, *policy.evict);
  return json;
}

Result<int> Print(const Store& store, const std::optional<std::string>& only, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<NamespaceInfo> all, store.Namespaces());
  Json list = Json::array();
  TextTable table({"NAMESPACE", "BRANCHES", "HOLDS", "CAP", "EVICT", "PERSIST", "INDEX", "TTL"},
                  {1, 2, 3});
  const auto add = [&](const NamespaceInfo& one, bool listed) {
    list.push_back(NamespaceToJson(one, listed));
    const NamespacePolicy& policy = one.policy;
    table.Add(
        {NamespaceText(one.name), std::to_string(one.branches), listed ? BytesText(one.bytes) : "-",
         policy.max_bytes == UINT64_MAX ? "-" : BytesText(policy.max_bytes),
         policy.evict ? NameIn(kEvicts, *policy.evict) : "-", NameIn(kPersists, policy.persist),
         NameIn(kIndexes, policy.index), SpanText(policy.ttl_ns)});
  };
  for (const NamespaceInfo& one : all) {
    if (!only || one.name == *only) add(one, true);
  }
  // Not listed: no branches, no policy. It is unknown then how much of its content others need.
  if (only && list.empty()) add({.name = *only}, false);
  if (json) {
    PrintJson({{"namespaces", list}});
  } else {
    std::printf("%s", table.ToString().c_str());
  }
  return kExitOk;
}

Result<int> RunNamespaces(const NamespaceArguments& arguments, bool json) {
  if (!arguments.changes()) {
    CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
    std::optional<std::string> ns;
    if (arguments.ns) {
      CAIRN_ASSIGN_OR_RETURN(ns, ReadNamespace(*arguments.ns));
    }
    return Print(store, ns, json);
  }
  if (!arguments.ns) {
    return Status(StatusCode::kInvalidArgument, "--set names the namespace that is to change");
  }
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenForWriting(arguments.store));
  const auto run = [&]() -> Result<int> {
    CAIRN_ASSIGN_OR_RETURN(const std::string ns, ReadNamespace(*arguments.ns));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<NamespaceInfo> all, store.Namespaces());
    NamespacePolicy policy;
    for (const NamespaceInfo& one : all) {
      if (one.name == ns) policy = one.policy;
    }
    if (arguments.max_bytes) {
      policy.max_bytes = *arguments.max_bytes == 0 ? UINT64_MAX : *arguments.max_bytes;
    }
    if (arguments.ttl_seconds) policy.ttl_ns = *arguments.ttl_seconds * kSecondNs;
    if (!arguments.persist.empty()) policy.persist = kPersists.at(arguments.persist);
    if (!arguments.index.empty()) policy.index = kIndexes.at(arguments.index);
    if (arguments.evict == "default") {
      policy.evict.reset();
    } else if (!arguments.evict.empty()) {
      policy.evict = kEvicts.at(arguments.evict);
    }
    CAIRN_RETURN_IF_ERROR(store.SetNamespace(ns, policy));
    return Print(store, ns, json);
  };
  return CloseAfter(&store, run());
}

}  // namespace

void AddKeepCommands(CLI::App& app, Session& session) {
  const auto keep = std::make_shared<KeepArguments>();
  CLI::App* command =
      AddCommand(app, session, "keep", Access::kLooksUnlessTold,
                 "Say how long a branch is kept\n\n"
                 "Where eviction is allowed (cairn namespaces, or the program that has the store\n"
                 "open), the least recently used branch of the lowest priority is evicted first.\n"
                 "A pinned one never is. Without an option: tells what holds now, beside a\n"
                 "process that writes, too.",
                 "  cairn keep state chat-42 --pin\n"
                 "  cairn keep state chat-42 --unpin --priority 3 --ttl 7d",
                 keep, RunKeep);
  AddBranchArguments(command, keep.get());
  CLI::Option* const pin = command->add_flag("--pin", keep->pin, "Neither evict nor expire it");
  command->add_flag("--unpin", keep->unpin, "The opposite")->excludes(pin);
  command->add_option("--priority", keep->priority, "0 (first to go) to 255")
      ->check(CLI::Range(0, 255));
  AddTtlOption(command, &keep->ttl_seconds, "Drop it when it was not used for so long");
  AddDurabilityOption(command, &keep->durability);

  const auto spaces = std::make_shared<NamespaceArguments>();
  command = AddCommand(
      app, session, "namespaces", Access::kLooksUnlessTold,
      "List namespaces with what they hold, or set what one may\n\n"
      "Stored bytes count for what is in tables, raw bytes for what is in the log. What is beyond\n"
      "a cap is refused, or room is made by eviction: kv takes KV and leaves tokens, branches\n"
      "takes whole branches when no KV is left. --persist says which KV of appends is kept,\n"
      "--index what is found: prefixes, nothing, or prefixes and chunks at any position.",
      "  cairn namespaces state\n"
      "  cairn namespaces state --set tenant-a --max-bytes 20GiB --evict kv\n"
      "  cairn namespaces state --set scratch --ttl 12h --persist turn-end",
      spaces, RunNamespaces);
  AddStoreArgument(command, &spaces->store);
  command->add_option("--set,--ns", spaces->ns, "The namespace; \"\" is the default one");
  command->add_option("--max-bytes", spaces->max_bytes, "Its cap; 0: none")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--evict", spaces->evict, "What may go: never, kv, branches, default")
      ->check(CLI::IsMember({"never", "kv", "branches", "default"}));
  command
      ->add_option("--persist", spaces->persist,
                   "Which KV is kept: always, turn-end, reused, tokens-only")
      ->check(CLI::IsMember({"always", "turn-end", "reused", "tokens-only"}));
  command->add_option("--index", spaces->index, "What is indexed: prefix, none, chunks")
      ->check(CLI::IsMember({"prefix", "none", "chunks"}));
  AddTtlOption(command, &spaces->ttl_seconds,
               "For branches made in it from now on: dropped when not used for so long");
}

}  // namespace cairn::cli
