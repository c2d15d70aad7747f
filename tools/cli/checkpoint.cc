// SPDX-License-Identifier: Apache-2.0
//
// checkpoint: a copy of a store that opens, as a backup or to try something on.
#include <cinttypes>
#include <cstdio>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/store_files.h"

namespace cairn::cli {

namespace {

struct CheckpointArguments {
  std::string store;
  std::string target;
};

Result<int> RunCheckpoint(const CheckpointArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenForWriting(arguments.store));
  Result<CheckpointInfo> made = [&] {
    ProgressBar bar(!json);
    return store.Checkpoint(arguments.target, [&](uint64_t done, uint64_t total) {
      bar.Update(done, total, BytesText(done) + " of " + BytesText(total));
    });
  }();
  const Status closed = store.Close();
  CAIRN_RETURN_IF_ERROR(made.status());
  CAIRN_RETURN_IF_ERROR(closed);
  const FileSums files = SumAllFiles(arguments.target);
  if (json) {
    PrintJson({{"store", arguments.store},
               {"target", arguments.target},
               {"sequence", made->sequence},
               {"linked_tables", made->linked_tables},
               {"linked_bytes", made->linked_bytes},
               {"copied_tables", made->copied_tables},
               {"copied_bytes", made->copied_bytes},
               {"files", files.ToJson()},
               {"own_allocated_bytes", files.allocated - files.shared},
               {"shared_allocated_bytes", files.shared}});
    return kExitOk;
  }
  std::printf("%s: a copy of %s up to sequence %" PRIu64 "\n", arguments.target.c_str(),
              arguments.store.c_str(), made->sequence);
  std::printf("  %s linked (with those of the index), %s of the log and of tables copied\n",
              Plural(made->linked_tables, "table").c_str(), BytesText(made->copied_bytes).c_str());
  std::printf("  %s: %s of its own, %s shared with the store\n", FilesText(files).c_str(),
              BytesText(files.allocated - files.shared).c_str(), BytesText(files.shared).c_str());
  return kExitOk;
}

}  // namespace

void AddCheckpointCommand(CLI::App& app, Session& session) {
  const auto checkpoint = std::make_shared<CheckpointArguments>();
  CLI::App* command = AddCommand(
      app, session, "checkpoint", Access::kOwns,
      "Make a copy of a store that opens by itself\n\n"
      "TARGET is absent or an empty directory. Sealed tables are hard links: they take no space\n"
      "until the store deletes its own, and damage to one is damage to both. Where TARGET is on\n"
      "another volume they are copied. Of the log what is written in it is copied. When the "
      "command ends the copy is\n"
      "durable; if it is interrupted, what is left at TARGET does not open and can be deleted.\n"
      "\n"
      "The copy is the same store at an earlier time and has its id. If both are written to, "
      "never\n"
      "move files from one into the other: nothing would notice a table of the wrong one.\n"
      "\n"
      "A store that another process writes is locked (exit code 5); that process makes its own\n"
      "checkpoints with Store::Checkpoint.",
      "  cairn checkpoint state /backup/state-monday\n"
      "  cairn checkpoint state try-it && cairn rewind try-it chat --to 4",
      checkpoint, RunCheckpoint);
  AddStoreArgument(command, &checkpoint->store);
  command->add_option("TARGET", checkpoint->target, "Directory of the copy")
      ->required()
      ->check([](const std::string& text) -> std::string {
        return text.empty() ? "the path is empty" : "";
      });
}

}  // namespace cairn::cli
