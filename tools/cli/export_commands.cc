// SPDX-License-Identifier: Apache-2.0
//
// export, import: branches as files that other programs and other stores read.
#include <cinttypes>
#include <cstdio>

#include "cairn/export.h"
#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"
#include "tools/cli/progress_bar.h"

namespace cairn::cli {

namespace {

// Memory for the pieces that KV is read in, and for pages of tables that two pieces share.
constexpr uint64_t kMemoryBytes = 512 << 20;

struct ExportArguments {
  std::string store, branch, file;
  std::optional<std::string> ns;
  uint64_t from = 0;
  std::optional<uint64_t> at, kv_from;
  bool tree = false, force = false;
};

struct ImportArguments {
  std::string store, file, name, model;
  std::optional<std::string> ns;
  bool tree = false;
};

ExportProgress ShowBytes(ProgressBar* bar) {
  return [bar](uint64_t done, uint64_t total) {
    bar->Update(done, total, BytesText(done) + " of " + BytesText(total));
  };
}

ExportProgress ShowBranches(ProgressBar* bar) {
  return [bar](uint64_t done, uint64_t total) {
    bar->Update(done, total, std::to_string(done) + " of " + Plural(total, "branch"));
  };
}

int ReportForest(const ForestInfo& made, const std::string& file, bool json) {
  if (json) {
    PrintJson({{"file", file},
               {"models", made.models},
               {"branches", made.branches},
               {"tokens", made.tokens},
               {"file_bytes", made.file_bytes}});
  } else {
    std::printf("%s: %s of %s, %s, %s\n", file.c_str(), Plural(made.branches, "branch").c_str(),
                Plural(made.models, "model").c_str(), Plural(made.tokens, "token").c_str(),
                BytesText(made.file_bytes).c_str());
  }
  return kExitOk;
}

Result<int> ExportTree(const Store& store, const ExportArguments& arguments, bool json) {
  ForestOptions options{.ns = {}, .replace = arguments.force};
  if (arguments.ns.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(options.ns, ReadNamespace(*arguments.ns));
  }
  ProgressBar bar(!json);
  CAIRN_ASSIGN_OR_RETURN(const ForestInfo made,
                         ExportForest(store, arguments.branch, options, ShowBranches(&bar)));
  return ReportForest(made, arguments.branch, json);
}

Result<int> ExportOne(const Store& store, const ExportArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, FindBranch(store, arguments.branch, arguments.ns));
  const ExportOptions options{.begin = arguments.from,
                              .end = arguments.at.value_or(UINT64_MAX),
                              .kv_begin = arguments.kv_from.value_or(UINT64_MAX),
                              .replace = arguments.force};
  Result<ExportInfo> made = [&] {
    ProgressBar bar(!json);
    return ExportBranch(branch, arguments.file, options, ShowBytes(&bar));
  }();
  CAIRN_RETURN_IF_ERROR(made.status());
  if (json) {
    PrintJson({{"file", arguments.file},
               {"snapshot_id", made->snapshot_id},
               {"base_snapshot_id", made->base_snapshot_id},
               {"begin", made->begin},
               {"end", made->end},
               {"kv_ends", made->kv_ends},
               {"kv_bytes", made->kv_bytes},
               {"file_bytes", made->file_bytes}});
    return kExitOk;
  }
  std::printf("%s: positions [%" PRIu64 ", %" PRIu64 "), %s of KV, %s\n", arguments.file.c_str(),
              made->begin, made->end, BytesText(made->kv_bytes).c_str(),
              BytesText(made->file_bytes).c_str());
  std::printf("  snapshot %s\n", made->snapshot_id.c_str());
  if (made->begin != 0) std::printf("  goes on from %s\n", made->base_snapshot_id.c_str());
  return kExitOk;
}

Result<int> RunExport(const ExportArguments& arguments, bool json) {
  const bool is_part = arguments.from != 0 || arguments.at.has_value() || arguments.kv_from;
  if (arguments.tree && (!arguments.file.empty() || is_part)) {
    return Status(StatusCode::kInvalidArgument,
                  "--tree takes all branches: `cairn export STORE FILE --tree`, with --ns at most");
  }
  if (!arguments.tree && arguments.file.empty()) {
    return Status(StatusCode::kInvalidArgument, "FILE is required");
  }
  Options options;
  options.read_only = true;
  options.max_memory_bytes = kMemoryBytes;
  options.hot_tail_bytes = 1 << 20;
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(arguments.store, options));
  return CloseAfter(&store, arguments.tree ? ExportTree(store, arguments, json)
                                           : ExportOne(store, arguments, json));
}

Result<int> ImportOne(Store* store, const ImportArguments& arguments, bool json) {
  ImportOptions options;
  if (!arguments.name.empty()) {
    std::optional<std::string> ns;
    if (arguments.ns.has_value()) {
      CAIRN_ASSIGN_OR_RETURN(ns, ReadNamespace(*arguments.ns));
    }
    CAIRN_ASSIGN_OR_RETURN(BranchOptions made, ReadNewBranch(arguments.name, ns));
    options.name = std::move(made.name);
    options.ns = std::move(made.ns);
  } else if (arguments.ns.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(options.ns, ReadNamespace(*arguments.ns));
  }
  if (!arguments.model.empty()) {
    CAIRN_ASSIGN_OR_RETURN(options.model, FindModel(*store, arguments.model));
  }
  Result<ImportInfo> made = [&] {
    ProgressBar bar(!json);
    return ImportBranch(*store, arguments.file, options, ShowBytes(&bar));
  }();
  CAIRN_RETURN_IF_ERROR(made.status());
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, made->branch.Info());
  if (json) {
    PrintJson({{"file", arguments.file},
               {"branch", ToJson(info)},
               {"begin", made->begin},
               {"end", made->end},
               {"found", made->found},
               {"kv_bytes", made->kv_bytes}});
    return kExitOk;
  }
  std::printf("%s: positions [%" PRIu64 ", %" PRIu64 "), %s of KV\n", LabelWithId(info).c_str(),
              made->begin, made->end, BytesText(made->kv_bytes).c_str());
  return kExitOk;
}

Result<int> RunImport(const ImportArguments& arguments, bool json) {
  if (arguments.tree && (!arguments.name.empty() || arguments.ns || !arguments.model.empty())) {
    return Status(StatusCode::kInvalidArgument,
                  "--tree brings all branches as they are called: no --name, --ns or --model");
  }
  Options options = WritingOptions();
  options.max_memory_bytes = kMemoryBytes;
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(arguments.store, options));
  if (!arguments.tree) return CloseAfter(&store, ImportOne(&store, arguments, json));
  Result<ForestInfo> made = [&] {
    ProgressBar bar(!json);
    return ImportForest(store, arguments.file, ShowBytes(&bar));
  }();
  if (!made.ok()) return CloseAfter(&store, made.status());
  return CloseAfter(&store, ReportForest(*made, arguments.file, json));
}

}  // namespace

void AddExportCommands(CLI::App& app, Session& session) {
  const auto exported = std::make_shared<ExportArguments>();
  CLI::App* command = AddCommand(
      app, session, "export", Access::kLooks,
      "Write a branch as a safetensors file\n\n"
      "Token ids, KV, states and content spans, with what `cairn import` needs to make the branch\n"
      "again, here or elsewhere; docs/export.md describes the file. --from writes a part, which "
      "is\n"
      "imported behind what comes before it. --tree writes all branches without KV, as one\n"
      "MessagePack file. FILE appears when it is whole.",
      "  cairn export state chat chat.safetensors\n"
      "  cairn export state chat chat-2.safetensors --from 4096\n"
      "  cairn export state all.msgpack --tree",
      exported, RunExport);
  AddStoreArgument(command, &exported->store);
  command->add_option("BRANCH", exported->branch, kBranchHelp)->required();
  command->add_option("FILE", exported->file, "The file to write");
  command->add_option("--ns", exported->ns, kNsHelp);
  AddNumberOption(command, "--from", &exported->from, "Only positions from N on: a part");
  AddNumberOption(command, "--at", &exported->at, "The branch as it was with N tokens");
  AddNumberOption(command, "--kv-from", &exported->kv_from,
                  "A part's KV from N on, not from one before --from");
  command->add_flag("--tree", exported->tree, "All branches, without KV; FILE alone is given");
  command->add_flag("--force", exported->force, "Replace a file that exists");

  const auto imported = std::make_shared<ImportArguments>();
  command = AddCommand(
      app, session, "import", Access::kOwns,
      "Make a branch of an exported file\n\n"
      "The branch gets the file's name, unless --name says otherwise, and appears when all of it\n"
      "was read and agrees with its digests. A part continues the branch that it goes on from.\n"
      "What an interrupted import leaves, the next one of the same file goes on with.",
      "  cairn import other chat.safetensors\n"
      "  cairn import other chat.safetensors --name archive/chat\n"
      "  cairn import other all.msgpack --tree",
      imported, RunImport);
  AddStoreArgument(command, &imported->store);
  command->add_option("FILE", imported->file, "The file to read")->required();
  command->add_option("--name", imported->name, "The branch to make, or to continue");
  command->add_option("--ns", imported->ns, "Its namespace (\"\" is the default one)");
  command->add_option("--model", imported->model, "It must be of the model of this name");
  command->add_flag("--tree", imported->tree, "A file of --tree: makes all its branches");
}

}  // namespace cairn::cli
