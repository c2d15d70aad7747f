// SPDX-License-Identifier: Apache-2.0
//
// create, verify: the store as a whole.
#include <cstdio>

#include "base/core/check.h"
#include "base/io/path.h"
#include "cairn/objects.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/progress_bar.h"

namespace cairn::cli {

namespace {

// --- create

// Three such are kept ready, and each command that writes makes another ready: of 4 MiB that is
// some milliseconds. Records of 2 MiB fit, which is the KV of one position of any common model.
constexpr uint64_t kSegmentBytes = 4ull << 20;

struct CreateArguments {
  std::string store;
  uint64_t segment_bytes = kSegmentBytes;
};

Result<int> RunCreate(const CreateArguments& arguments, bool json) {
  Options options = WritingOptions();
  options.create_if_missing = true;
  options.error_if_exists = true;
  options.segment_bytes = arguments.segment_bytes;
  Result<Store> made = Store::Open(arguments.store, options);
  if (!made.ok()) return NameOption(made.status(), "options.segment_bytes", "--segment-bytes");
  Store& store = *made;
  const std::string sync_method = store.sync_method();
  CAIRN_RETURN_IF_ERROR(store.Close());
  if (json) {
    PrintJson({{"store", arguments.store},
               {"segment_bytes", arguments.segment_bytes},
               {"sync_method", sync_method}});
  } else {
    std::printf("%s: a new store, segments of %s, made durable by %s\n", arguments.store.c_str(),
                BytesText(arguments.segment_bytes).c_str(), sync_method.c_str());
  }
  return kExitOk;
}

// --- verify

struct VerifyArguments {
  std::string store;
  bool index = false;
  bool all = false;

  VerifyLevel level() const {
    return all ? VerifyLevel::kAll : index ? VerifyLevel::kIndex : VerifyLevel::kHeaders;
  }
};

// The error that keeps the store from opening, in the form of Store::Verify.
VerifyReport::Damage DamageOf(const std::string& store, const Status& status) {
  std::string what(status.message());
  const std::string directory = io::JoinPath(store, "");
  const size_t behind_a_word = what.find(" " + directory);  // "open ".
  size_t name = 0;
  if (what.starts_with(directory)) {
    name = directory.size();
  } else if (behind_a_word != std::string::npos) {
    name = behind_a_word + 1 + directory.size();
  } else if (!what.starts_with("log/")) {
    return {store, status.ToString()};
  }
  const size_t end = what.find(": ", name);
  if (end == std::string::npos) return {store, status.ToString()};
  return {what.substr(name, end - name), Status(status.code(), what.substr(end + 2)).ToString()};
}

// A store whose headers are damaged does not open at all; that is a finding, too.
Result<VerifyReport> Verify(const VerifyArguments& arguments, bool json, bool* opened,
                            uint64_t* objects) {
  const Result<Store> store = OpenForReading(arguments.store);
  *opened = store.ok();
  if (store.ok()) {
    CAIRN_ASSIGN_OR_RETURN(const auto spaces, Objects(*store).Usage());
    for (const NamespaceInfo& ns : spaces) *objects += ns.branches;
    ProgressBar bar(!json);
    return store->Verify(arguments.level(), [&](uint64_t done, uint64_t total) {
      bar.Update(done, total, BytesText(done) + " of " + BytesText(total));
    });
  }
  if (store.status().code() != StatusCode::kCorruption) return store.status();
  VerifyReport report;
  report.damages.push_back(DamageOf(arguments.store, store.status()));
  return report;
}

Result<int> RunVerify(const VerifyArguments& arguments, bool json) {
  bool opened = false;
  uint64_t objects = 0;
  CAIRN_ASSIGN_OR_RETURN(const VerifyReport report, Verify(arguments, json, &opened, &objects));
  if (json) {
    Json damages = Json::array();
    for (const VerifyReport::Damage& damage : report.damages) {
      damages.push_back(
          {{"where", damage.where}, {"what", damage.what}, {"sequence", damage.sequence}});
    }
    PrintJson({{"ok", report.damages.empty()},
               {"opened", opened},
               {"level", arguments.all     ? "all"
                         : arguments.index ? "index"
                                           : "headers"},
               {"records", report.records},
               {"strips", report.strips},
               {"index_tables", report.index_tables},
               {"tables", report.tables},
               {"frames", report.frames},
               {"bytes", report.bytes},
               {"objects", objects},
               {"damages", damages}});
  } else {
    for (const VerifyReport::Damage& damage : report.damages) {
      const std::string record =
          damage.sequence == 0 ? "" : " (record " + std::to_string(damage.sequence) + ")";
      std::printf("DAMAGED  %s%s: %s\n", Printable(damage.where).c_str(), record.c_str(),
                  Printable(damage.what).c_str());
    }
    if (!opened) {
      std::printf(
          "%s: does not open, so nothing else was checked; what can be kept: cairn repair %s\n",
          arguments.store.c_str(), ShellWord(arguments.store).c_str());
      return kExitDamage;
    }
    std::string payload;
    if (arguments.all) {
      payload = ", " + Plural(report.strips, "strip") + ", " + Plural(report.frames, "frame") +
                ", " + BytesText(report.bytes) + " of payload";
    } else {
      payload = arguments.index ? " (no payload; --all reads every byte)"
                                : " (headers only; --all reads every byte)";
    }
    const std::string held = objects == 0 ? "" : "; it holds " + Plural(objects, "object");
    std::printf("%s: %s, %s checked%s: %s%s\n", arguments.store.c_str(),
                Plural(report.records, "record").c_str(),
                Plural(report.index_tables + report.tables, "table").c_str(), payload.c_str(),
                report.damages.empty() ? "no damage"
                                       : Plural(report.damages.size(), "damaged place").c_str(),
                held.c_str());
  }
  return report.damages.empty() ? kExitOk : kExitDamage;
}

}  // namespace

void AddStoreCommands(CLI::App& app, Session& session) {
  const auto create = std::make_shared<CreateArguments>();
  CLI::App* command = AddCommand(
      app, session, "create", Access::kOwns,
      "Make a new store\n\n"
      "Measures which way of making a write durable is faster on this volume, and keeps to it. "
      "Each\n"
      "command that writes begins a new log segment, so these are small. A store that a server\n"
      "writes at hundreds of MiB a second, or that holds recurrent states of more than 3 MiB,\n"
      "wants larger ones: 64MiB is what the library takes.",
      "  cairn create state\n"
      "  cairn create state --segment-bytes 64MiB",
      create, RunCreate);
  AddStoreArgument(command, &create->store);
  command
      ->add_option("--segment-bytes", create->segment_bytes,
                   "Size of a log segment, from 256KiB to 1GiB; fixed for ever")
      ->transform(CLI::AsSizeValue(false))
      ->transform(DecimalNumber(/*unit_allowed=*/true))  // Comes before the one above.
      ->default_str("4MiB");

  const auto verify = std::make_shared<VerifyArguments>();
  command =
      AddCommand(app, session, "verify", Access::kLooks,
                 "Check the stored bytes; exit code 4 when some are damaged\n\n"
                 "Reads log and tables from the device and lists each damaged place by file and\n"
                 "offset; where the store does not open, the first one. Alone it looks at what\n"
                 "opening reads; --index also at the whole index, the directories of the\n"
                 "tables, and whether they fit each other; --all at every byte. What damage to\n"
                 "the log costs and how to go on: cairn repair.",
                 "  cairn verify state\n"
                 "  cairn verify state --index --json\n"
                 "  cairn verify state --all || echo damaged",
                 verify, RunVerify);
  AddStoreArgument(command, &verify->store);
  command->add_flag("--index", verify->index, "Also the index and the directories of the tables");
  command->add_flag("--all", verify->all, "Also every byte of payload, and that it decodes");
}

}  // namespace cairn::cli
