// SPDX-License-Identifier: Apache-2.0
//
// Property: the README's examples are real, and the build has the options that docs/build.md names.
// Method: the C++ block is compared with the file that is built as cairn-example. That program and
// the other examples are run twice in an empty directory. A shell runs the block of commands line
// by line in an empty directory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/source_dir.h"

namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Readme, ShowsTheExampleThatIsBuilt) {
  const std::string root = cairn::testing::SourcePath("");
  std::string example = ReadAll(root + "/tools/example/first_store.cc");
  ASSERT_FALSE(example.empty());
  example = example.substr(example.find('\n') + 1);  // Without the licence line.
  EXPECT_NE(ReadAll(root + "/README.md").find("```cpp\n" + example + "```"), std::string::npos)
      << "README.md and tools/example/first_store.cc differ";
}

// CMake takes an option that is misspelt without a word.
TEST(Readme, NamesOptionsOfTheBuildThatExist) {
  const std::string root = cairn::testing::SourcePath("");
  const std::string page = ReadAll(root + "/README.md") + ReadAll(root + "/docs/build.md"),
                    build = ReadAll(root + "/CMakeLists.txt");
  size_t options = 0;
  for (size_t at = page.find("-DCAIRN_"); at != std::string::npos;
       at = page.find("-DCAIRN_", at + 1)) {
    const std::string name = page.substr(at + 2, page.find('=', at) - at - 2);
    EXPECT_NE(build.find("option(" + name + " "), std::string::npos) << name;
    ++options;
  }
  EXPECT_GE(options, 3u);
}

TEST(Readme, TheExamplesRun) {
  char pattern[] = "/tmp/cairn-example-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  for (const std::string program : {"cairn-example", "cairn-example-c", "cairn-example-hybrid"}) {
    const std::string command = "cd " + std::string(pattern) + " && " CAIRN_BIN_DIR "/" + program;
    EXPECT_EQ(std::system(command.c_str()), 0) << program;
    EXPECT_EQ(std::system(command.c_str()), 0) << program;  // The store exists already.
  }
  std::filesystem::remove_all(pattern);
}

// The default segment would take about 64 MiB for every command that writes.
TEST(Readme, TheCommandsRunAndTakeLittleRoom) {
  const std::string readme = ReadAll(cairn::testing::SourcePath("/README.md"));
  const size_t begin = readme.find("```sh\ncairn create ");
  ASSERT_NE(begin, std::string::npos);
  const size_t first = begin + 6;
  const std::string commands = readme.substr(first, readme.find("```", first) - first);
  char pattern[] = "/tmp/cairn-commands-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  const std::filesystem::path directory = pattern;
  std::ofstream(directory / "commands")
      << "cd " << pattern << "\nPATH=" CAIRN_BIN_DIR ":$PATH\nset -e\n"
      << commands;
  EXPECT_EQ(std::system(("sh " + (directory / "commands").string()).c_str()), 0) << commands;
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(directory / "state")) {
    if (file.is_regular_file()) bytes += file.file_size();
  }
  EXPECT_LT(bytes, 16u << 20);
  std::filesystem::remove_all(directory);
}

}  // namespace
