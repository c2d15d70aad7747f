// SPDX-License-Identifier: Apache-2.0
//
// Property: the README's C++ example is real. Method: its block is compared with the file that is
// built as cairn-example, and that program is run twice in an empty directory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Readme, ShowsTheExampleThatIsBuilt) {
  const std::string root = CAIRN_SOURCE_DIR;
  std::string example = ReadAll(root + "/tools/example/first_store.cc");
  ASSERT_FALSE(example.empty());
  example = example.substr(example.find('\n') + 1);  // Without the licence line.
  EXPECT_NE(ReadAll(root + "/README.md").find("```cpp\n" + example + "```"), std::string::npos)
      << "README.md and tools/example/first_store.cc differ";
}

TEST(Readme, TheExampleRuns) {
  char pattern[] = "/tmp/cairn-example-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  const std::string command = "cd " + std::string(pattern) + " && " CAIRN_BIN_DIR "/cairn-example";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(std::system(command.c_str()), 0);  // The store is there already.
  std::filesystem::remove_all(pattern);
}

}  // namespace
