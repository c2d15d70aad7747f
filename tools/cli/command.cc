// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include "base/core/check.h"
#include "base/io/file_util.h"
#include "engine/manifest/manifest.h"
#include "engine/store/store_directory.h"
#include "tools/cli/output.h"

namespace cairn::cli {

ExitCode ExitCodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return kExitOk;
    case StatusCode::kInvalidArgument: return kExitUsage;
    case StatusCode::kNotFound: return kExitNotFound;
    case StatusCode::kCorruption: return kExitDamage;
    case StatusCode::kBusy:
    case StatusCode::kLocked: return kExitBusy;
    case StatusCode::kAlreadyExists:
    case StatusCode::kConflict:
    case StatusCode::kModelMismatch: return kExitConflict;
    case StatusCode::kUnsupportedFormat: return kExitFormat;
    case StatusCode::kInvalidState:
    case StatusCode::kEvicted:
    case StatusCode::kExpired:
    case StatusCode::kStale:
    case StatusCode::kNoSpace:
    case StatusCode::kPoisoned:
    case StatusCode::kUnknownOutcome:
    case StatusCode::kIoError:
    case StatusCode::kReadOnly:
    case StatusCode::kCancelled:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kOutOfMemory: return kExitError;
  }
  return kExitError;
}

void AddStoreArgument(CLI::App* command, std::string* path) {
  command->add_option("STORE", *path, "Directory of the store")
      ->required()
      ->check([](const std::string& text) -> std::string {
        if (text.empty()) return "the path is empty";
        if (text == ":memory:") return "a store in memory would end with this command";
        return "";
      });
}

void AddBranchArguments(CLI::App* command, BranchArguments* arguments) {
  AddStoreArgument(command, &arguments->store);
  command->add_option("BRANCH", arguments->branch, kBranchHelp)->required();
  command->add_option("--ns", arguments->ns, kNsHelp);
}

void AddDurabilityOption(CLI::App* command, Durability* durability) {
  static const std::map<std::string, Durability> kNames = {{"memory", Durability::kMemory},
                                                           {"process", Durability::kProcess},
                                                           {"power", Durability::kPower}};
  command
      ->add_option_function<std::string>(
          "--durability", [durability](const std::string& name) { *durability = kNames.at(name); },
          "memory, process (survives kill -9) or power: how safe a change is when it is reported. "
          "When the command has ended, all are on stable media")
      ->check([](const std::string& name) {
        return kNames.contains(name) ? "" : "--durability is memory, process or power, not " + name;
      })
      ->default_str("process");
}

CLI::Validator DecimalNumber(bool unit_allowed) {
  const auto read = [unit_allowed](std::string& text) -> std::string {
    uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc::result_out_of_range) return text + " is too large";
    const bool rest_is_good = std::all_of(stop, end, [&](char c) {
      return unit_allowed && (c == ' ' || std::isalpha(static_cast<unsigned char>(c)) != 0);
    });
    if (error != std::errc() || !rest_is_good) {
      return "\"" + Excerpt(text) + "\" is no " + (unit_allowed ? "size" : "number from 0 on");
    }
    text = std::to_string(value) + std::string(stop, end);
    return "";
  };
  return CLI::Validator(read, "");
}

Result<Store> OpenStore(const std::string& path, const Options& options) {
  Result<Store> store = Store::Open(path, options);
  if (!store.ok()) return ExplainOpen(path, store.status());
  return store;
}

Result<Store> OpenForReading(const std::string& path) {
  Options options;
  options.read_only = true;
  // Reads what it needs from the files; there is nothing hot yet.
  options.max_memory_bytes = 64 << 20;
  options.hot_tail_bytes = 1 << 20;
  return OpenStore(path, options);
}

Options WritingOptions() {
  Options options;
  options.spare_segments_min = 1;
  options.spare_segments_max = 2;
  options.max_memory_bytes = 256 << 20;
  options.hot_tail_bytes = 64 << 20;
  return options;
}

Result<Store> OpenForWriting(const std::string& path) { return OpenStore(path, WritingOptions()); }

Result<io::World> WorldOfStore(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(io::World world, io::MakeRealWorld(io::IoBackend::kThreads));
  const Status entered = engine::EnterDirectory(&world, path, /*create=*/false);
  if (!entered.ok() && entered.code() != StatusCode::kNotFound) return entered;
  return world;
}

Status ExplainOpen(const std::string& path, const Status& status) {
  if (status.code() == StatusCode::kInvalidArgument) {
    return Status(StatusCode::kCorruption, std::string(status.message()));
  }
  if (status.code() != StatusCode::kNotFound) return status;
  // A file of a store may be missing, too: that is damage.
  CAIRN_ASSIGN_OR_RETURN(const io::World world, WorldOfStore(path));
  const auto manifest = engine::ReadManifest(*world.files, path);
  if (manifest.status().code() != StatusCode::kNotFound) return io::MissingIsCorruption(status);
  return Status(StatusCode::kNotFound,
                "no store at " + path + " (cairn create " + ShellWord(path) + " makes one)");
}

Status NameOption(const Status& status, std::string_view word, std::string_view option) {
  std::string message(status.message());
  const size_t at = message.find(word);
  if (at == std::string::npos) return status;
  return Status(status.code(), message.replace(at, word.size(), option));
}

Result<int> CloseAfter(Store* store, Result<int> result) {
  const Status closed = store->Close();
  if (!result.ok()) return result;
  CAIRN_RETURN_IF_ERROR(closed);
  return result;
}

}  // namespace cairn::cli
