// SPDX-License-Identifier: Apache-2.0
//
// find: what a store has of a prompt.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <thread>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"
#include "tools/cli/plan_report.h"
#include "tools/cli/token_text.h"

namespace cairn::cli {

namespace {

// Memory that a command uses for the index of prefixes.
constexpr uint64_t kReuseMemoryBytes = 16 << 20;
// How long it waits for that to be made, and how often it looks.
constexpr std::chrono::minutes kIndexingMax{10};
// Beside a writer there is only the log to catch up with: what else is missing, that makes.
constexpr std::chrono::seconds kFollowingMax{10};
constexpr std::chrono::milliseconds kPause{5};

struct FindArguments {
  std::string store, tokens, model;
  std::string ns;
  std::vector<std::string> also;
  bool approximate = false, anywhere = false;
  std::vector<std::string> options;  // The plan's.
};

Result<std::vector<TokenId>> ReadPrompt(const std::string& path) {
  std::vector<TokenId> tokens;
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) return Status(StatusCode::kNotFound, "--tokens: " + path + " cannot be opened");
  }
  std::istream& from = path == "-" ? std::cin : file;
  CAIRN_RETURN_IF_ERROR(ReadTokens(from, &tokens).WithContext("--tokens " + path));
  if (from.bad()) return Status(StatusCode::kIoError, "--tokens: " + path + " cannot be read");
  return tokens;
}

// Content that was written without an index is indexed first, in the background.
template <typename Find>
auto Completely(std::chrono::seconds most, const Find& find) {
  const auto give_up = std::chrono::steady_clock::now() + most;
  while (true) {
    auto found = find();
    if (!found.ok() || found->complete || std::chrono::steady_clock::now() > give_up) return found;
    std::this_thread::sleep_for(kPause);
  }
}

// The branch that has the hit's tokens, and of several the one that was changed last. Nothing: they
// were dropped meanwhile.
Result<std::optional<BranchInfo>> BranchOf(const Store& store, const PrefixQuery& query,
                                           const PrefixHit& hit) {
  std::vector<BranchInfo> long_enough;
  std::vector<std::string_view> spaces(query.also.begin(), query.also.end());
  spaces.push_back(query.ns);
  for (const std::string_view ns : spaces) {
    std::string cursor;
    do {
      CAIRN_ASSIGN_OR_RETURN(BranchPage page, store.ListBranches(ns, "", kListedAtOnce, cursor));
      for (BranchInfo& info : page.branches) {
        if (info.model == query.model && info.length >= hit.matched) {
          long_enough.push_back(std::move(info));
        }
      }
      cursor = page.cursor;
    } while (!cursor.empty());
  }
  std::sort(long_enough.begin(), long_enough.end(), [](const BranchInfo& a, const BranchInfo& b) {
    return std::pair(a.updated_at_ns, a.id) > std::pair(b.updated_at_ns, b.id);
  });
  for (const BranchInfo& info : long_enough) {
    const Result<Branch> branch = store.GetBranch(info.id);
    if (branch.status().code() == StatusCode::kNotFound) continue;
    CAIRN_RETURN_IF_ERROR(branch.status());
    const Result<std::vector<PathStep>> path = branch->Path();
    if (path.status().code() == StatusCode::kNotFound) continue;
    CAIRN_RETURN_IF_ERROR(path.status());
    for (const PathStep& step : *path) {
      if (step.node == hit.node && step.end >= hit.matched) return std::optional(info);
    }
  }
  return std::optional<BranchInfo>();
}

Status Report(const PrefixHit& hit, const std::optional<BranchInfo>& branch, uint64_t tokens,
              bool json) {
  if (json) {
    Json found = {{"branch", nullptr}, {"ns", nullptr}, {"id", nullptr}};
    if (branch.has_value()) {
      found = {{"branch", branch->name.empty() ? IdText(branch->id) : branch->name},
               {"ns", branch->ns},
               {"id", static_cast<uint64_t>(branch->id)}};
    }
    found.update({{"node", static_cast<uint64_t>(hit.node)},
                  {"tokens", tokens},
                  {"matched", hit.matched},
                  {"restorable", hit.restorable},
                  {"exact", hit.exact},
                  {"complete", hit.complete}});
    PrintJson(found);
  } else if (!hit.found()) {
    std::printf("nothing of %s%s%s\n", Plural(tokens, "token").c_str(),
                tokens < kPrefixBlock ? ": prefixes of less than 64 tokens are not found" : "",
                hit.complete ? "" : " so far: the store is still being indexed");
  } else {
    std::printf("%llu of %s, KV of %llu, in %s\n", static_cast<unsigned long long>(hit.matched),
                Plural(tokens, "token").c_str(), static_cast<unsigned long long>(hit.restorable),
                branch.has_value() ? LabelWithId(*branch).c_str() : "a branch that is gone by now");
  }
  return Status::Ok();
}

// Found is what is anywhere.
Result<int> PlanOf(const Store& store, const FindArguments& arguments, const PrefixQuery& query,
                   std::chrono::seconds most, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const BlendOptions options, ReadBlendOptions(arguments.options));
  CAIRN_ASSIGN_OR_RETURN(const BlendPlan plan,
                         Completely(most, [&] { return store.PlanBlend(query, options); }));
  std::vector<std::string_view> spaces(query.also.begin(), query.also.end());
  spaces.push_back(query.ns);
  CAIRN_RETURN_IF_ERROR(ReportPlan(store, plan, spaces, json));
  const bool found =
      std::any_of(plan.segments.begin(), plan.segments.end(),
                  [](const BlendSegment& segment) { return segment.match != BlendMatch::kNone; });
  return found ? kExitOk : kExitNotFound;
}

Result<int> FindIn(const Store& store, const FindArguments& arguments,
                   const std::vector<TokenId>& tokens, std::chrono::seconds most, bool json) {
  PrefixQuery query;
  CAIRN_ASSIGN_OR_RETURN(query.model, FindModel(store, arguments.model));
  CAIRN_ASSIGN_OR_RETURN(const std::string ns, ReadNamespace(arguments.ns));
  std::vector<std::string> names;
  for (const std::string& one : arguments.also) {
    CAIRN_ASSIGN_OR_RETURN(names.emplace_back(), ReadNamespace(one));
  }
  const std::vector<std::string_view> also(names.begin(), names.end());
  query.tokens = tokens;
  query.ns = ns;
  query.also = also;
  query.approximate = arguments.approximate;
  if (arguments.anywhere) return PlanOf(store, arguments, query, most, json);
  CAIRN_ASSIGN_OR_RETURN(const PrefixHit hit,
                         Completely(most, [&] { return store.FindPrefix(query); }));
  std::optional<BranchInfo> branch;
  if (hit.found()) {
    CAIRN_ASSIGN_OR_RETURN(branch, BranchOf(store, query, hit));
  }
  CAIRN_RETURN_IF_ERROR(Report(hit, branch, tokens.size(), json));
  return hit.found() ? kExitOk : kExitNotFound;
}

Result<int> RunFind(const FindArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, ReadPrompt(arguments.tokens));
  Options options = WritingOptions();
  options.reuse_memory_bytes = kReuseMemoryBytes;
  Result<Store> store = OpenStore(arguments.store, options);
  if (store.status().code() == StatusCode::kLocked) {  // Its writer answers for the index.
    options.read_only = true;
    store = OpenStore(arguments.store, options);
  }
  CAIRN_RETURN_IF_ERROR(store.status());
  const std::chrono::seconds most = options.read_only ? kFollowingMax : kIndexingMax;
  return CloseAfter(&*store, FindIn(*store, arguments, tokens, most, json));
}

}  // namespace

void AddFindCommand(CLI::App& app, Session& session) {
  const auto find = std::make_shared<FindArguments>();
  CLI::App* command = AddCommand(
      app, session, "find", Access::kOwns,
      "Find what the store has of a prompt\n\n"
      "Of all branches of a namespace the one that has most of the token ids, from the first on,\n"
      "and up to where its KV can be restored; of several the one that was changed last. What is "
      "shorter than 64 tokens is not looked for.\n"
      "A store that was written without an index of prefixes gets one first. While another "
      "process\n"
      "has the store, it answers from what that has written and indexed, and changes nothing.\n"
      "With --anywhere: what the prompt repeats at any position, and what of it is computed "
      "again,\n"
      "of namespaces that index chunks (docs/blend.md).\n"
      "Exit code 3: nothing was found.",
      "  cairn find state --tokens prompt.ids --ns tenant-a --also shared --json\n"
      "  tokenize < prompt.txt | cairn find state --tokens -\n"
      "  cairn find state --tokens prompt.ids --ns documents --anywhere",
      find, RunFind);
  AddStoreArgument(command, &find->store);
  command->add_option("--tokens", find->tokens, "A file of token ids, or - for standard input")
      ->required();
  command->add_option("--model", find->model, "Name of the model, if there are several");
  command->add_option("--ns", find->ns, "Namespace (\"\" is the default one)");
  command->add_option("--also", find->also, "Another namespace to look in; may be repeated");
  CLI::Option* const anywhere =
      command->add_flag("--anywhere", find->anywhere, "At any position: show the plan");
  command->add_option("--option", find->options, kBlendOptionHelp)->needs(anywhere);
  command->add_flag("--approximate", find->approximate, "Also KV that was appended as approximate");
}

}  // namespace cairn::cli
