// SPDX-License-Identifier: Apache-2.0
//
// fork, rewind, rename, drop: changes that need no tokens.
#include <cstdio>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"

namespace cairn::cli {

namespace {

struct ChangeArguments : BranchArguments {
  Durability durability = Durability::kProcess;
  std::string name;                  // fork, rename: the new one.
  std::optional<uint64_t> position;  // fork, rewind.
};

// Opens, finds the branch, changes something, and reports the branch that `change` returns.
template <typename Change>
Result<int> ChangeBranch(const ChangeArguments& arguments, bool json, Change change,
                         const char* done = "") {
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenForWriting(arguments.store));
  const auto run = [&]() -> Result<int> {
    CAIRN_ASSIGN_OR_RETURN(Branch branch, FindBranch(store, arguments.branch, arguments.ns));
    CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, change(branch));
    if (json) {
      PrintJson(ToJson(info));
    } else {
      std::printf("%s: %s%s\n", LabelWithId(info).c_str(), done,
                  Plural(info.length, "token").c_str());
    }
    return kExitOk;
  };
  return CloseAfter(&store, run());
}

Result<int> RunFork(const ChangeArguments& arguments, bool json) {
  return ChangeBranch(arguments, json, [&](Branch& branch) -> Result<BranchInfo> {
    CAIRN_ASSIGN_OR_RETURN(const BranchInfo source, branch.Info());
    CAIRN_ASSIGN_OR_RETURN(const std::string name, ReadNewName(arguments.name, source.ns));
    CAIRN_ASSIGN_OR_RETURN(
        const Branch twin,
        branch.ForkAt(arguments.position.value_or(source.length),
                      {.name = name, .ns = source.ns, .durability = arguments.durability}));
    return twin.Info();
  });
}

Result<int> RunRewind(const ChangeArguments& arguments, bool json) {
  return ChangeBranch(arguments, json, [&](Branch& branch) -> Result<BranchInfo> {
    CAIRN_RETURN_IF_ERROR(branch.Rewind(*arguments.position, arguments.durability));
    return branch.Info();
  });
}

Result<int> RunRename(const ChangeArguments& arguments, bool json) {
  return ChangeBranch(arguments, json, [&](Branch& branch) -> Result<BranchInfo> {
    CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
    CAIRN_ASSIGN_OR_RETURN(const std::string name, ReadNewName(arguments.name, info.ns));
    CAIRN_RETURN_IF_ERROR(branch.Rename(name, arguments.durability));
    return branch.Info();
  });
}

// Reports the branch as it was.
Result<int> RunDrop(const ChangeArguments& arguments, bool json) {
  return ChangeBranch(
      arguments, json,
      [&](Branch& branch) -> Result<BranchInfo> {
        CAIRN_ASSIGN_OR_RETURN(BranchInfo info, branch.Info());
        CAIRN_RETURN_IF_ERROR(branch.Drop(arguments.durability));
        return info;
      },
      "dropped, it had ");
}

}  // namespace

void AddChangeCommands(CLI::App& app, Session& session) {
  const auto fork = std::make_shared<ChangeArguments>();
  CLI::App* command =
      AddCommand(app, session, "fork", Access::kOwns,
                 "Make a new branch from the first tokens of another\n\n"
                 "Takes constant time and copies no data. The new branch is in the same namespace.",
                 "  cairn fork state chat-42 --at 1200 --name what-if\n"
                 "  cairn fork state chat-42              # at its end, without a name",
                 fork, RunFork);
  AddBranchArguments(command, fork.get());
  AddNumberOption(command, "--at", &fork->position, "Position; the branch's length if absent");
  command->add_option("--name", fork->name, "Name of the new branch; unnamed if absent");
  AddDurabilityOption(command, &fork->durability);

  const auto rewind = std::make_shared<ChangeArguments>();
  command = AddCommand(app, session, "rewind", Access::kOwns,
                       "Forget the tokens of a branch from a position on\n\n"
                       "Branches that left it later keep theirs.",
                       "  cairn rewind state chat-42 --to 1000", rewind, RunRewind);
  AddBranchArguments(command, rewind.get());
  AddNumberOption(command, "--to", &rewind->position, "Length that is left")->required();
  AddDurabilityOption(command, &rewind->durability);

  const auto rename = std::make_shared<ChangeArguments>();
  command = AddCommand(app, session, "rename", Access::kOwns, "Give a branch another name",
                       "  cairn rename state chat-42 chat-42-old\n"
                       "  cairn rename state '#17' keep-this",
                       rename, RunRename);
  AddBranchArguments(command, rename.get());
  command->add_option("NAME", rename->name, "The new name")->required();
  AddDurabilityOption(command, &rename->durability);

  const auto drop = std::make_shared<ChangeArguments>();
  command = AddCommand(app, session, "drop", Access::kOwns,
                       "Remove a branch\n\n"
                       "What no other branch shares with it is freed. There is no way back.",
                       "  cairn drop state what-if", drop, RunDrop);
  AddBranchArguments(command, drop.get());
  AddDurabilityOption(command, &drop->durability);
}

}  // namespace cairn::cli
