// SPDX-License-Identifier: Apache-2.0
//
// Shared by the subcommands of `cairn`: how they are declared, how they open a store and name a
// branch, and the meaning of their exit codes.
//
// A family of subcommands is one Add...Commands function. It declares options that write into a
// struct of its own and registers an Action, which main runs once the arguments are read. An Action
// prints its result to standard output itself; it returns its error.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/world.h"
#include "cairn/store.h"

namespace cairn::cli {

// Part of the interface; never change. Explained in `cairn --help`.
enum ExitCode : int {
  kExitOk = 0,
  kExitError = 1,     // The system or the store refused.
  kExitUsage = 2,     // The arguments make no sense.
  kExitNotFound = 3,  // No such store, branch, model or file.
  kExitDamage = 4,    // Stored bytes fail their check.
  kExitBusy = 5,      // Somebody else has the store, or it has no room right now.
  kExitConflict = 6,  // The state differs from what the command expects.
  kExitFormat = 7,    // A newer version of cairn wrote it.
};
ExitCode ExitCodeOf(StatusCode code);

using Action = std::function<Result<int>()>;

// How a command uses a store. The help of the program groups the commands by this.
enum class Access : uint8_t {
  kLooks,            // Takes no lock and changes nothing in it: OpenForReading, or less.
  kLooksUnlessTold,  // The same unless an option makes it change something.
  kOwns,             // Makes it, or has its lock while it runs.
};

// One run of the program.
struct Session {
  std::map<Access, std::vector<std::string>> commands;  // By name, as they were added.
  bool json = false;
  Action action;  // What the given subcommand does.
};

// Declares a command below `app` with --json. `text` is its help: a first line for the list of
// commands, then what it does; `examples` go below the options. `arguments` lives as long as the
// action.
template <typename Arguments>
CLI::App* AddSubcommand(CLI::App& app, Session& session, const std::string& name,
                        const std::string& text, const std::string& examples,
                        const std::shared_ptr<Arguments>& arguments,
                        Result<int> (*run)(const Arguments&, bool json)) {
  CLI::App* command = app.add_subcommand(name, text)->footer("Examples:\n" + examples);
  command->add_flag("--json", session.json, "Print JSON");
  command->callback([&session, arguments, run] {
    session.action = [&session, arguments, run] { return run(*arguments, session.json); };
  });
  return command;
}

// The same for `cairn <name>`, which the help of the program lists.
template <typename Arguments>
CLI::App* AddCommand(CLI::App& app, Session& session, const std::string& name, Access access,
                     const std::string& text, const std::string& examples,
                     const std::shared_ptr<Arguments>& arguments,
                     Result<int> (*run)(const Arguments&, bool json)) {
  session.commands[access].push_back(name);
  return AddSubcommand(app, session, name, text, examples, arguments, run);
}

void AddStoreCommands(CLI::App& app, Session& session);      // create, verify
void AddCompactCommand(CLI::App& app, Session& session);     // compact
void AddCheckpointCommand(CLI::App& app, Session& session);  // checkpoint
void AddExportCommands(CLI::App& app, Session& session);     // export, import
void AddStatCommand(CLI::App& app, Session& session);        // stat
void AddTopCommand(CLI::App& app, Session& session);         // top
void AddLookCommands(CLI::App& app, Session& session);       // ls, cat, models
void AddShowCommand(CLI::App& app, Session& session);        // show
void AddTreeCommand(CLI::App& app, Session& session);        // tree
void AddDuCommand(CLI::App& app, Session& session);          // du
void AddDiffCommand(CLI::App& app, Session& session);        // diff
void AddLogCommand(CLI::App& app, Session& session);         // log
void AddAppendCommand(CLI::App& app, Session& session);      // append
void AddChangeCommands(CLI::App& app, Session& session);     // fork, rewind, rename, drop
void AddKeepCommands(CLI::App& app, Session& session);       // keep, namespaces
void AddFindCommand(CLI::App& app, Session& session);        // find
void AddComposeCommand(CLI::App& app, Session& session);     // compose
void AddObjectCommands(CLI::App& app, Session& session);     // objects
void AddShadowCommands(CLI::App& app, Session& session);     // shadow
void AddWalDumpCommand(CLI::App& app, Session& session);     // dump-wal
void AddDoctorCommand(CLI::App& app, Session& session);      // doctor
void AddRepairCommand(CLI::App& app, Session& session);      // repair

// --- Arguments that many have

// The directory of the store, as first positional argument.
void AddStoreArgument(CLI::App* command, std::string* path);

struct BranchArguments {
  std::string store;
  std::string branch;             // See FindBranch.
  std::optional<std::string> ns;  // As given.
};
inline constexpr const char* kBranchHelp = "The branch: NAME, NS/NAME, or '#ID'";
inline constexpr const char* kNsHelp =
    "Namespace, and BRANCH is a NAME in it; '' is the default one";
void AddBranchArguments(CLI::App* command, BranchArguments* arguments);
void AddDurabilityOption(CLI::App* command, Durability* durability);

// For transform(): takes decimal digits, followed by a unit if that is allowed, and nothing else.
// CLI11 alone would read -1 and 2^64 as 2^64 - 1, and 010 as eight.
CLI::Validator DecimalNumber(bool unit_allowed = false);

// `value`: an unsigned integer, or an optional one.
template <typename Value>
CLI::Option* AddNumberOption(CLI::App* command, const std::string& name, Value* value,
                             const std::string& text) {
  return command->add_option(name, *value, text)->transform(DecimalNumber());
}

// --- Stores and branches

// Store::Open of a store that must be there; its errors speak of the command line (ExplainOpen).
Result<Store> OpenStore(const std::string& path, const Options& options);
// Takes no lock and changes nothing, so it is safe beside a process that writes.
Result<Store> OpenForReading(const std::string& path);
// With little memory and few spare segments: a command writes little and is gone soon.
Result<Store> OpenForWriting(const std::string& path);
Options WritingOptions();

// The machine, for a command that looks at the files of the store at `path`: no link within it is
// followed. Also Ok if nothing exists there.
Result<io::World> WorldOfStore(const std::string& path);

// The error of opening the store at `path`, for a user who gave a path and no Options: kNotFound
// says how to make a store; if there is one, a file of it is missing, which is damage. So is
// kInvalidArgument, as commands pass no invalid options: the files do not belong together.
Status ExplainOpen(const std::string& path, const Status& status);
// Replaces the library's `word` in the message by the command's option: `option`.
Status NameOption(const Status& status, std::string_view word, std::string_view option);

// Closes the store; the failure of the command itself comes first.
Result<int> CloseAfter(Store* store, Result<int> result);

}  // namespace cairn::cli
