// SPDX-License-Identifier: Apache-2.0
//
// `cairn`: looks into a store, changes it, checks it and mends it.
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"

namespace cairn::cli {
namespace {

std::string About(Session& session) {
  const auto list = [&](Access access) {
    std::string names;
    for (const std::string& name : session.commands[access]) {
      names += (names.empty() ? "  " : ", ") + name;
    }
    return names;
  };
  return "Stores of Cairn: the state of language models, durable and branching.\n"
         "\n"
         "These commands only look:\n" +
         list(Access::kLooks) + "\nand these, unless an option tells them to change something:\n" +
         list(Access::kLooksUnlessTold) +
         "\nThey take no lock and change nothing in the store: they are safe beside a process\n"
         "that writes and show what it had written when they began. The others own the store\n"
         "while they run.";
}

constexpr const char* kFooter =
    "Give BRANCH as other commands print it, also for a branch that is made: NAME in the default\n"
    "namespace, NS/NAME in another one, or '#ID'. The quotes are for the shell, which takes # for\n"
    "the beginning of a comment. \\xNN is a byte: \\x2f a slash of a name itself, \\x5c a\n"
    "backslash, and so what cannot be shown as it is. With --ns BRANCH is a NAME and nothing "
    "else.\n"
    "\n"
    "Exit codes:\n"
    "  0  done\n"
    "  1  the system or the store refused: I/O error, no space, poisoned, ...\n"
    "  2  usage: the arguments make no sense\n"
    "  3  not found: no such store, branch or model\n"
    "  4  damage found: stored bytes fail their check\n"
    "  5  locked or busy: another process has the store; try again later\n"
    "  6  conflict: what is there differs from what was expected (name taken, other length)\n"
    "  7  a newer version of cairn wrote the store\n"
    "\n"
    "Errors go to standard error, as {\"error\": {\"code\", \"message\"}} with --json.\n"
    "\n"
    "A first walk:\n"
    "  cairn create notes --segment-bytes 1MiB\n"
    "  cairn append notes chat --create 1 2 3 4 5 6\n"
    "  cairn fork notes chat --at 4 --name what-if\n"
    "  cairn append notes what-if 9 9 9\n"
    "  cairn tree notes";

void PrintError(const Status& status, const std::string& command, bool json) {
  if (json) {
    std::fprintf(stderr, "%s\n",
                 ToJson(status).dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    return;
  }
  const std::string where = command.empty() ? "" : command + ": ";
  std::fprintf(stderr, "cairn: %s%s\n", where.c_str(), Printable(status.ToString()).c_str());
}

int Fail(Status status, const std::string& command, bool json) {
  if (status.code() == StatusCode::kLocked) {
    status = Status(status.code(), std::string(status.message()) +
                                       ". Commands that only look (cairn --help lists them) "
                                       "may run beside the process that has the store open");
  }
  PrintError(status, command, json);
  return ExitCodeOf(status.code());
}

// The one that is not --json, which may stand before a command.
std::vector<std::string>::const_iterator FirstWord(const std::vector<std::string>& words) {
  return std::find_if(words.begin(), words.end(),
                      [](const std::string& word) { return word != "--json"; });
}

std::string CommandName(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? "" : given.front()->get_name();
}

// The list of commands has the first line of each one's help.
class Formatter final : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App* command) const override {
    const std::string text = command->get_description();
    std::ostringstream out;
    CLI::detail::format_help(out, command->get_name(), text.substr(0, text.find('\n')),
                             get_column_width());
    return out.str();
  }
};

// The first word, where a command belongs, if it is none; else empty.
std::string NoCommand(const CLI::App& app, const std::vector<std::string>& words) {
  const auto first = FirstWord(words);
  const bool none = app.get_subcommands().empty() && first != words.end() && (*first)[0] != '-';
  return none ? *first : "";
}

int UsageError(const CLI::App& app, std::string what, const std::vector<std::string>& words,
               bool json) {
  if (what == "BRANCH is required") what += std::string(" (") + kQuoteIds + ")";
  if (const std::string word = NoCommand(app, words); !word.empty()) {
    what = "there is no command \"" + word + "\"";
  }
  PrintError(Status(StatusCode::kInvalidArgument, what), CommandName(app), json);
  if (!json) {
    const std::string name = CommandName(app);
    std::fprintf(stderr, "Try: cairn %s%s--help\n", name.c_str(), name.empty() ? "" : " ");
  }
  return kExitUsage;
}

// --help and --version arrive as parse errors of exit code 0.
int AfterParseError(const CLI::App& app, const CLI::ParseError& error,
                    const std::vector<std::string>& words, bool json) {
  if (error.get_exit_code() != 0 || !NoCommand(app, words).empty()) {
    return UsageError(app, error.what(), words, json);
  }
  if (!json || error.get_name() != "CallForVersion") return app.exit(error);
  PrintJson({{"version", Version()}, {"format", kFormatVersion}});
  return kExitOk;
}

// The arguments, where `help COMMAND`, `help` and `version`, the words of other programs, became
// --help and --version.
std::vector<std::string> Words(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto first = words.begin() + (FirstWord(words) - words.cbegin());
  if (first != words.end() && *first == "version") *first = "--version";
  if (first != words.end() && *first == "help") {
    words.erase(first);
    words.push_back("--help");
  }
  return words;
}

int Main(int argc, char** argv) {
  CLI::App app("", "cairn");
  const auto formatter = std::make_shared<Formatter>();
  formatter->column_width(26);
  app.formatter(formatter);
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("cairn ") + Version() + ", format " +
                                        std::to_string(kFormatVersion));
  const std::vector<std::string> words = Words(argc, argv);
  Session session;
  app.add_flag("--json", session.json, "Print JSON; also behind the command");
  AddStoreCommands(app, session);
  AddCompactCommand(app, session);
  AddCheckpointCommand(app, session);
  AddExportCommands(app, session);
  AddStatCommand(app, session);
  AddTopCommand(app, session);
  AddLookCommands(app, session);
  AddShowCommand(app, session);
  AddTreeCommand(app, session);
  AddDuCommand(app, session);
  AddDiffCommand(app, session);
  AddLogCommand(app, session);
  AddAppendCommand(app, session);
  AddFindCommand(app, session);
  AddComposeCommand(app, session);
  AddChangeCommands(app, session);
  AddKeepCommands(app, session);
  AddObjectCommands(app, session);
  AddShadowCommands(app, session);
  AddWalDumpCommand(app, session);
  AddRepairCommand(app, session);
  AddDoctorCommand(app, session);
  app.description(About(session));
  try {
    app.parse(std::vector(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    // The flag itself may not have been read before the error.
    const bool json =
        session.json || std::find(words.begin(), words.end(), "--json") != words.end();
    return AfterParseError(app, error, words, json);
  }
  const std::string command = CommandName(app);
  const Result<int> result = session.action();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Fail(Status(StatusCode::kIoError, "standard output cannot be written"), command,
                session.json);
  }
  return result.ok() ? *result : Fail(result.status(), command, session.json);
}

}  // namespace
}  // namespace cairn::cli

int main(int argc, char** argv) { return cairn::cli::Main(argc, argv); }
