// SPDX-License-Identifier: Apache-2.0
//
// compact: the log into tables, now.
#include <chrono>
#include <cstdio>
#include <future>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/progress_bar.h"

namespace cairn::cli {

namespace {

struct CompactArguments {
  std::string store;
};

Status CompactWithBar(Store* store, bool bar_wanted) {
  auto compaction =
      std::async(std::launch::async, [store] { return store->Compact(); });  // Ends before `store`.
  ProgressBar bar(bar_wanted);
  const uint64_t segments = store->Metrics().log_segments;
  while (compaction.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    const uint64_t done = store->Metrics().retired_segments;
    bar.Update(done, segments,
               std::to_string(done) + " of " + Plural(segments, "log segment") + " given back");
  }
  return compaction.get();
}

Result<int> RunCompact(const CompactArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenForWriting(arguments.store));
  const StoreMetrics before = store.Metrics();
  const Status compacted = CompactWithBar(&store, !json);
  const StoreMetrics after = store.Metrics();
  const Status closed = store.Close();
  if (compacted.code() == StatusCode::kCorruption) {
    return Status(StatusCode::kCorruption,
                  std::string(compacted.message()) +
                      "; damaged bytes cannot be packed while a branch needs them: drop the " +
                      "branch, or rewind it below the damage, and compact again");
  }
  CAIRN_RETURN_IF_ERROR(compacted);
  CAIRN_RETURN_IF_ERROR(closed);
  // As it lies there now: while it was open it had a segment to write into.
  CAIRN_ASSIGN_OR_RETURN(const Store left, OpenForReading(arguments.store));
  const uint64_t stored_bytes = left.Metrics().stored_bytes;
  if (json) {
    PrintJson({{"store", arguments.store},
               {"stored_bytes_before", before.stored_bytes},
               {"stored_bytes", stored_bytes},
               {"table_bytes", after.table_bytes},
               {"tables", after.tables},
               {"retired_segments", after.retired_segments},
               {"rewritten_tables", after.rewritten_tables}});
    return kExitOk;
  }
  std::printf("%s: %s before, %s now, %s of it in %s\n", arguments.store.c_str(),
              BytesText(before.stored_bytes).c_str(), BytesText(stored_bytes).c_str(),
              BytesText(after.table_bytes).c_str(), Plural(after.tables, "snapshot table").c_str());
  std::printf("  %s given back, %s rewritten\n",
              Plural(after.retired_segments, "log segment").c_str(),
              Plural(after.rewritten_tables, "snapshot table").c_str());
  return kExitOk;
}

}  // namespace

void AddCompactCommand(CLI::App& app, Session& session) {
  const auto compact = std::make_shared<CompactArguments>();
  CLI::App* command = AddCommand(
      app, session, "compact", Access::kOwns,
      "Pack a store now: its log into tables, and tables that are mostly dead anew\n\n"
      "A store does this by itself while a process has it open, in the background and by and by.\n"
      "What a command writes lies in log segments until a later process packs it, and what was\n"
      "dropped or rewound takes its space until then: so after many commands, or before a copy,\n"
      "do it here. Without loss, but for planes of models that are registered to be sealed with\n"
      "some. Interrupted, it has done a part of it. Where a branch needs damaged bytes it\n"
      "does the rest and fails (exit code 4): see cairn repair --help.\n"
      "\n"
      "A store that another process writes is locked (exit code 5); that process calls\n"
      "Store::Compact.",
      "  cairn compact state\n"
      "  cairn drop state old-chat && cairn compact state --json",
      compact, RunCompact);
  AddStoreArgument(command, &compact->store);
}

}  // namespace cairn::cli
