// SPDX-License-Identifier: Apache-2.0
//
// cairn-demo: what the store is for, shown with a real model and proved in the same minute.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <string>

#include "base/core/check.h"
#include "tools/demo/console.h"
#include "tools/demo/demo.h"
#include "tools/demo/report.h"

namespace cairn::demo {
namespace {

namespace fs = std::filesystem;

// Where the store lies: the user's directory, which stays, or one of our own in the current
// directory, which is removed unless someone should look at what is wrong in it.
class StoreDirectory {
 public:
  StoreDirectory() = default;
  StoreDirectory(const StoreDirectory&) = delete;
  StoreDirectory& operator=(const StoreDirectory&) = delete;
  ~StoreDirectory() {
    std::error_code ignored;
    if (ours_) fs::remove_all(path_, ignored);
  }

  Status Choose(const std::string& wanted) {
    std::error_code error;
    path_ = wanted;
    if (!wanted.empty()) {
      if (!fs::exists(wanted, error) || fs::is_empty(wanted, error)) return Status::Ok();
      return Status(StatusCode::kAlreadyExists,
                    wanted + " is in use; --dir wants an empty or a new directory");
    }
    path_ = "cairn-demo-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) {
      return Status(StatusCode::kIoError,
                    "mkdtemp in the current directory: " + std::string(std::strerror(errno)));
    }
    ours_ = true;
    return Status::Ok();
  }
  void Keep() { ours_ = false; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool ours_ = false;
};

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

int Fail(const Status& status) {
  std::fprintf(stderr, "cairn-demo: %s\n", status.ToString().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

int Run(Settings settings, bool json) {
  CatchInterrupts();
  StoreDirectory directory;
  if (const Status status = directory.Choose(settings.dir); !status.ok()) return Fail(status);
  settings.dir = directory.path();

  Report report;
  Console console(json);
  const Status status = RunDemo(settings, &console, &report);
  if (status.code() == StatusCode::kCorruption) directory.Keep();
  if (!status.ok()) return Fail(status);

  if (json) {
    std::printf("%s\n", report.ToJson().dump(2).c_str());
  } else {
    console.Say("\n" + report.Table());
    console.Say("\n" + report.io_name + ", " + report.sync_method + "; seed " +
                std::to_string(report.seed));
  }
  if (!report.AllProved()) {
    directory.Keep();
    return Fail(Status(StatusCode::kCorruption, "a proof failed; the store is in " + settings.dir));
  }
  console.Say("Everything PROVED.");
  return 0;
}

int Main(int argc, char** argv) {
  Settings settings;
  bool json = false;
  CLI::App app(
      "Generates text with its state in a store, kills itself, recovers, continues, forks, and\n"
      "proves that every bit is what a run in memory gives.",
      "cairn-demo");
  app.add_option("--dir", settings.dir,
                 "Directory for the store, new or empty; it stays. Default: one in the current\n"
                 "directory that is removed");
  app.add_option("--seed", settings.seed, "Key of the sampler")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 63))
      ->capture_default_str();
  app.add_option("--tokens", settings.tokens, "Tokens to generate before forking")
      ->check(CLI::Range(kTokensMin, 1 << 20))
      ->capture_default_str();
  app.add_option("--kills", settings.kills, "How often to SIGKILL the process that generates")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--prompt", settings.prompt, "Text to continue")->capture_default_str();
  app.add_option("--checkpoint", settings.checkpoint, "llama2.c checkpoint, version 0")
      ->capture_default_str();
  app.add_option("--tokenizer", settings.tokenizer, "llama2.c tokenizer")->capture_default_str();
  const std::map<std::string, Backend> backends = {
      {"auto", Backend::kAuto}, {"uring", Backend::kUring}, {"threads", Backend::kThreads}};
  app.add_option_function<std::string>(
         "--backend", [&](const std::string& name) { settings.backend = backends.at(name); },
         "What the store does its I/O with")
      ->check(CLI::IsMember(&backends))
      ->default_str("auto");
  app.add_flag("--json", json, "Print one JSON object; progress goes to standard error");
  try {
    app.parse(argc, argv);
    if (settings.kills > KillsMax(settings.tokens)) {
      throw CLI::ValidationError("--kills",
                                 std::to_string(settings.tokens) + " tokens are enough for " +
                                     std::to_string(KillsMax(settings.tokens)) + " at most");
    }
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help.
    std::fprintf(stderr, "cairn-demo: %s\nTry: cairn-demo --help\n", error.what());
    return kExitUsage;
  }
  return Run(settings, json);
}

}  // namespace
}  // namespace cairn::demo

int main(int argc, char** argv) {
  try {
    return cairn::demo::Main(argc, argv);
  } catch (const std::exception& exception) {  // Memory, above all.
    std::fprintf(stderr, "cairn-demo: %s\n", exception.what());
    return cairn::demo::kExitFailed;
  }
}
