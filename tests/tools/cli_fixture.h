// SPDX-License-Identifier: Apache-2.0
//
// Shared by tests of `cairn`: a store in a temporary directory, the program run on it, and its
// output as text or JSON.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cairn/store.h"
#include "tests/tools/run_tool.h"

namespace cairn::testing {

namespace fs = std::filesystem;
using nlohmann::json;

using Bytes = std::map<std::string, std::string>;

inline std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void FlipByte(const fs::path& path, uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
  ASSERT_TRUE(file.good()) << path;
}

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "cairn-cli-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    store_ = (root_ / "store").string();
  }
  void TearDown() override { fs::remove_all(root_); }

  static ToolResult Cairn(std::vector<std::string> arguments, const std::string& input = {}) {
    return RunTool("cairn", arguments, input);
  }
  // The program's output; the exit code must be this.
  static std::string Output(std::vector<std::string> arguments, int exit_code = 0,
                            const std::string& input = {}) {
    const ToolResult result = RunTool("cairn", arguments, input);
    EXPECT_EQ(result.exit_code, exit_code) << result.output << result.errors;
    return result.output;
  }
  static json JsonOutput(std::vector<std::string> arguments, int exit_code = 0,
                         const std::string& input = {}) {
    arguments.push_back("--json");
    const std::string output = Output(arguments, exit_code, input);
    json value = json::parse(output, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << output;
    return value;
  }
  static std::vector<json> JsonLines(const std::string& output) {
    std::vector<json> lines;
    std::istringstream stream(output);
    for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
    return lines;
  }
  // The error as text and as JSON.
  static void ExpectError(std::vector<std::string> arguments, int exit_code,
                          const std::string& code, const std::string& in_message) {
    const ToolResult text = Cairn(arguments);
    EXPECT_EQ(text.exit_code, exit_code) << text.errors;
    EXPECT_TRUE(text.errors.starts_with("cairn: ")) << text.errors;
    EXPECT_NE(text.errors.find(code), std::string::npos) << text.errors;
    EXPECT_NE(text.errors.find(in_message), std::string::npos) << text.errors;
    arguments.push_back("--json");
    const ToolResult as_json = Cairn(arguments);
    EXPECT_EQ(as_json.exit_code, exit_code);
    const json error = json::parse(as_json.errors, nullptr, false);
    ASSERT_TRUE(error.is_object()) << as_json.errors;
    EXPECT_EQ(error["error"]["code"], code);
    EXPECT_NE(error["error"]["message"].get<std::string>().find(in_message), std::string::npos);
  }

  void Create() { Output({"create", store_, "--segment-bytes", "256KiB"}); }

  Store OpenStore() {
    Options options;
    options.create_if_missing = true;
    options.segment_bytes = 256 << 10;
    options.spare_segments_min = 1;
    options.spare_segments_max = 2;
    auto store = Store::Open(store_, options);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return std::move(*store);
  }

  // Five durable appends of ten tokens, each in a group of its own, all in one segment.
  void MakeFiveGroups() {
    Store store = OpenStore();
    ModelSpec spec;
    spec.identity.name = "tokens";
    const auto model = store.RegisterModel(spec);
    ASSERT_TRUE(model.ok());
    auto branch = store.CreateBranch(*model, {.name = "chat", .ns = "", .durability = {}});
    ASSERT_TRUE(branch.ok());
    std::vector<TokenId> tokens(10);
    for (TokenId round = 0; round < 5; ++round) {
      for (TokenId i = 0; i < 10; ++i) tokens[i] = round * 10 + i;
      AppendOptions options;
      options.durability = Durability::kPower;
      ASSERT_TRUE(branch->AppendSync({.tokens = tokens}, options).ok());
    }
    ASSERT_TRUE(store.Close().ok());
  }

  // The record of the n-th append (from 0), as dump-wal shows it.
  json AppendRecord(size_t n) {
    for (const json& line : JsonLines(Output({"dump-wal", store_, "--json"}))) {
      if (line["type"] == "record" && line["kind"] == "append" && n-- == 0) return line;
    }
    ADD_FAILURE() << "no such append";
    return {};
  }

  fs::path SegmentFile(uint64_t segment) {
    char name[32];
    std::snprintf(name, sizeof name, "%016llx.log", static_cast<unsigned long long>(segment));
    return fs::path(store_) / "log" / name;
  }

  Bytes AllFiles() {
    Bytes files;
    for (const auto& entry : fs::recursive_directory_iterator(store_)) {
      if (entry.is_regular_file()) files[entry.path().string()] = ReadFile(entry.path());
    }
    return files;
  }

  fs::path root_;
  std::string store_;
};

}  // namespace cairn::testing
