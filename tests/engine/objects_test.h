// SPDX-License-Identifier: Apache-2.0
//
// Short forms of calls about objects. The content of an object follows from a seed and its size.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cairn/objects.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {

inline std::vector<std::byte> Content(uint64_t seed, size_t bytes) {
  std::vector<std::byte> content(bytes);
  uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (std::byte& byte : content) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<std::byte>(state >> 56);
  }
  return content;
}

class ObjectsTest : public WorldTest {
 protected:
  static constexpr uint32_t kPage = 512;

  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    auto id = Space().RegisterClass({.name = "pages", .page_bytes = kPage});
    ASSERT_OK(id);
    class_ = *id;
  }
  Objects Space() { return Objects(store_); }

  PutResult Put(std::string_view key, std::span<const std::byte> value, PutOptions options = {}) {
    if (options.object_class == ObjectClassId{}) options.object_class = class_;
    const ObjectPut put{.key = key, .value = value};
    auto results = Space().PutBatch({&put, 1}, options);
    if (!results.ok()) return {.status = results.status()};
    return (*results)[0];
  }
  // Its bytes; nothing: it is not there.
  static std::optional<std::vector<std::byte>> Get(const Objects& space, std::string_view key,
                                                   std::string_view ns = {}) {
    const auto info = space.Stat(key, ns);
    if (info.status().code() == StatusCode::kNotFound) return std::nullopt;
    EXPECT_OK(info);
    if (!info.ok()) return std::nullopt;
    std::vector<std::byte> into(info->bytes);
    const ObjectGet get{.key = key, .into = into};
    auto results = space.GetBatch({&get, 1}, {.ns = ns});
    EXPECT_OK(results);
    EXPECT_OK((*results)[0].status);
    EXPECT_EQ(into.size(), (*results)[0].bytes);
    return into;
  }
  std::optional<std::vector<std::byte>> Get(std::string_view key, std::string_view ns = {}) {
    return Get(Space(), key, ns);
  }
  bool Has(std::string_view key, std::string_view ns = {}) {
    auto found = Space().Exists({&key, 1}, ns);
    EXPECT_OK(found);
    return found.ok() && (*found)[0];
  }
  Status Delete(std::string_view key, std::string_view ns = {}) {
    auto outcomes = Space().Delete({&key, 1}, ns);
    return outcomes.ok() ? (*outcomes)[0] : outcomes.status();
  }
  std::vector<std::string> Keys(std::string_view ns = {}, size_t limit = 3) {
    std::vector<std::string> keys;
    std::string cursor;
    do {
      auto page = Space().List(ns, limit, cursor);
      EXPECT_OK(page);
      if (!page.ok()) break;
      EXPECT_LE(page->objects.size(), limit);
      for (const ObjectInfo& info : page->objects) keys.push_back(info.key);
      cursor = page->cursor;
    } while (!cursor.empty());
    return keys;
  }
  // The background has filled the directory; a second at most.
  bool AwaitDirectory() {
    for (int look = 0; look < 1000; ++look) {
      if (store_.Metrics().object_directory_whole == 1) return true;
      world_->world().scheduler->Sleep(1'000'000);
    }
    return false;
  }

  ObjectClassId class_{};
};

}  // namespace cairn::testing
