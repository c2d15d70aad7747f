// SPDX-License-Identifier: Apache-2.0
//
// shadow: stand-ins for the keys of a branch (docs/shadow.md).
#include <cstdio>
#include <map>

#include "cairn/shadow_session.h"
#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"

namespace cairn::cli {

namespace {

struct ShadowArguments : BranchArguments {
  ShadowOf of;
};

const std::map<std::string, ShadowKeys> kKeys = {{"exact", ShadowKeys::kExact},
                                                 {"int8", ShadowKeys::kInt8},
                                                 {"int4", ShadowKeys::kInt4},
                                                 {"low_rank", ShadowKeys::kLowRank}};

void PrintShadow(const ShadowInfo& info, bool json) {
  if (json) {
    PrintJson({{"tokens", info.tokens},
               {"covered", info.covered},
               {"chunks", info.chunks},
               {"always_chunks", info.always_chunks},
               {"budget_chunks", info.budget_chunks},
               {"table_bytes", info.table_bytes},
               {"tokens_read", info.tokens_read}});
    return;
  }
  if (info.covered == 0) {
    std::printf("%s are too few: attention is dense\n", Plural(info.tokens, "token").c_str());
    return;
  }
  std::printf(
      "%llu of %s in %s of each head: %u always attended to, %u selected in a step; a table of "
      "%s\n",
      static_cast<unsigned long long>(info.covered), Plural(info.tokens, "token").c_str(),
      Plural(info.chunks, "chunk").c_str(), info.always_chunks, info.budget_chunks,
      BytesText(info.table_bytes).c_str());
}

template <typename Run>
Result<int> InStore(Result<Store> opened, const ShadowArguments& arguments, const Run& run) {
  CAIRN_ASSIGN_OR_RETURN(Store store, std::move(opened));
  const auto on_branch = [&]() -> Result<int> {
    CAIRN_ASSIGN_OR_RETURN(const Branch branch, FindBranch(store, arguments.branch, arguments.ns));
    return run(branch);
  };
  return CloseAfter(&store, on_branch());
}

Result<int> RunBuild(const ShadowArguments& arguments, bool json) {
  return InStore(OpenForWriting(arguments.store), arguments,
                 [&](const Branch& branch) -> Result<int> {
                   CAIRN_ASSIGN_OR_RETURN(const ShadowInfo info, BuildShadow(branch, arguments.of));
                   PrintShadow(info, json);
                   return kExitOk;
                 });
}

Result<int> RunStat(const ShadowArguments& arguments, bool json) {
  return InStore(OpenForReading(arguments.store), arguments,
                 [&](const Branch& branch) -> Result<int> {
                   CAIRN_ASSIGN_OR_RETURN(const ShadowInfo info, FindShadow(branch, arguments.of));
                   PrintShadow(info, json);
                   return kExitOk;
                 });
}

Result<int> RunDrop(const ShadowArguments& arguments, bool json) {
  return InStore(OpenForWriting(arguments.store), arguments,
                 [&](const Branch& branch) -> Result<int> {
                   CAIRN_RETURN_IF_ERROR(DropShadow(branch, arguments.of));
                   if (json) PrintJson({{"dropped", true}});
                   return kExitOk;
                 });
}

void AddSpecOptions(CLI::App* command, ShadowOf* of) {
  AddNumberOption(command, "--chunk", &of->spec.chunk_tokens,
                  "Tokens of a chunk: 1, 2, 4 (unless told), 8 or 16");
  command->add_option("--keys", of->spec.keys, "int4 (unless told), int8, exact or low_rank")
      ->transform(CLI::CheckedTransformer(kKeys));
  AddNumberOption(command, "--rank", &of->spec.rank, "Of low_rank: so many directions");
  command->add_option("--rank-energy", of->spec.rank_energy,
                      "Of low_rank: as many directions as keep this share of all keys");
  AddNumberOption(command, "--landmark-bits", &of->spec.landmark_bits, "4 (unless told), 8 or 16");
  AddNumberOption(command, "--local", &of->spec.local_tokens, "Newest tokens that it leaves out");
  AddNumberOption(command, "--sinks", &of->spec.sink_tokens, "First tokens, always attended to");
  command->add_option("--outliers", of->spec.outlier_share, "Share of chunks, always attended to");
  AddNumberOption(command, "--group", &of->group, "Layer group of the model");
  AddNumberOption(command, "--end", &of->end, "Of the branch's tokens those before this one");
}

}  // namespace

void AddShadowCommands(CLI::App& app, Session& session) {
  session.commands[Access::kLooksUnlessTold].push_back("shadow");
  CLI::App* const shadow = app.add_subcommand(
      "shadow",
      "Stand-ins for the keys of a branch: stat; build and drop change the store\n"
      "With one a GPU attends to few chunks of a long context. It is made of stored keys, once "
      "for\n"
      "each spec, and lies in a table of the branch and its forks; losing it loses nothing.");
  shadow->require_subcommand(1);
  const auto add = [&](const char* name, const std::string& text, const std::string& examples,
                       Result<int> (*run)(const ShadowArguments&, bool)) {
    const auto arguments = std::make_shared<ShadowArguments>();
    CLI::App* const command = AddSubcommand(*shadow, session, name, text, examples, arguments, run);
    AddBranchArguments(command, arguments.get());
    AddSpecOptions(command, &arguments->of);
  };
  add("build",
      "Make the shadow of a branch\n"
      "Reads the keys behind what an earlier one covers. One that is there is left as it is.",
      "  cairn shadow build state chat", RunBuild);
  add("stat", "Show the shadow of a branch\nExit code 3: there is none of this spec.",
      "  cairn shadow stat state chat --keys int8 --json", RunStat);
  add("drop", "Forget the shadow of a branch, and of the forks that share it",
      "  cairn shadow drop state chat", RunDrop);
}

}  // namespace cairn::cli
