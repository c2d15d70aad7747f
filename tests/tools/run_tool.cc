// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/run_tool.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "base/core/check.h"

namespace cairn::testing {

namespace {

using TemporaryFile = std::unique_ptr<FILE, int (*)(FILE*)>;

// Files instead of pipes: no amount of output can block the program.
TemporaryFile MakeFile(const std::string& content) {
  TemporaryFile file(std::tmpfile(), std::fclose);
  CAIRN_CHECK(file != nullptr);
  CAIRN_CHECK(std::fwrite(content.data(), 1, content.size(), file.get()) == content.size());
  std::rewind(file.get());
  return file;
}

std::string Content(const TemporaryFile& file) {
  std::string content;
  char chunk[4096];
  std::rewind(file.get());
  for (size_t n; (n = std::fread(chunk, 1, sizeof chunk, file.get())) > 0;)
    content.append(chunk, n);
  return content;
}

}  // namespace

ToolResult RunTool(const std::string& program, const std::vector<std::string>& arguments,
                   const std::string& input) {
  const std::string path = std::string(CAIRN_BIN_DIR) + "/" + program;
  const TemporaryFile in = MakeFile(input), out = MakeFile(""), errors = MakeFile("");
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(errors.get()), STDERR_FILENO);
  pid_t child = 0;
  CAIRN_CHECK(posix_spawn(&child, path.c_str(), &actions, nullptr, argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);

  int status = 0;
  CAIRN_CHECK(waitpid(child, &status, 0) == child);
  ToolResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  result.output = Content(out);
  result.errors = Content(errors);
  return result;
}

}  // namespace cairn::testing
