// SPDX-License-Identifier: Apache-2.0
//
// Two stores of one simulated machine, which files pass between, and branches whose content is
// compared position by position.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cairn/export.h"
#include "sim/world.h"
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {

inline constexpr uint64_t kExportSeed = 11;

// A safetensors file in two pieces that can be changed and put together again.
struct TornFile {
  nlohmann::ordered_json header;
  std::string data;

  static TornFile Of(const std::string& file) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, file.data(), sizeof(bytes));
    return {nlohmann::ordered_json::parse(file.substr(8, bytes)), file.substr(8 + bytes)};
  }
  std::string Together() const { return WithHeader(header.dump()); }
  std::string WithHeader(std::string text) const {
    while (text.size() % 8 != 0) text += ' ';
    const uint64_t bytes = text.size();
    return std::string(reinterpret_cast<const char*>(&bytes), sizeof(bytes)) + text + data;
  }
  // A text of the metadata that is JSON itself.
  template <typename Change>
  void ChangeJson(const std::string& name, const Change& change) {
    auto value = nlohmann::ordered_json::parse(header["__metadata__"][name].get<std::string>());
    change(value);
    header["__metadata__"][name] = value.dump();
  }
};

class ExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sim_ = io::MakeSimWorld(1);
    from_ = Open("/from");
    into_ = Open("/into");
  }

  Options OptionsIn(const io::SimWorld& sim) {
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim.world());
    return options;
  }
  Store Open(const std::string& path) {
    auto store = Store::Open(path, OptionsIn(sim_));
    EXPECT_OK(store);
    return store.ok() ? std::move(*store) : Store();
  }
  static ModelId Register(Store& store, const ModelSpec& spec) {
    const auto id = store.RegisterModel(spec);
    EXPECT_OK(id);
    return id.ok() ? *id : ModelId{};
  }
  Branch Create(const ModelSpec& spec, const std::string& name, const std::string& ns = "") {
    const auto branch = from_.CreateBranch(Register(from_, spec), {.name = name, .ns = ns});
    EXPECT_OK(branch);
    return branch.ok() ? *branch : Branch();
  }
  // The rows of these positions that the groups can be given: an encoder's output once.
  static const KvView* View(KvSet* kv, const ModelSpec& spec, uint64_t begin, uint64_t count) {
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (const LayerGroup& group : spec.groups) {
      const bool once = group.retention.kind == Retention::kPerRequest;
      ranges.emplace_back(once ? 0 : begin, once ? (begin == 0 ? 1 : 0) : count);
    }
    return kv->View(ranges);
  }
  // KV of one position behind its token.
  static Status Fill(Branch& branch, const ModelSpec& spec, uint64_t position) {
    KvSet kv(spec, Layout::kContiguous, 0, position + 1);
    kv.Write(kExportSeed, position, position + 1);
    std::vector<GroupView> groups;
    for (const GroupView& group : View(&kv, spec, position, 1)->groups) {
      if (group.count != 0) groups.push_back(group);
    }
    return branch.Fill({.groups = groups});
  }
  // `count` positions with KV of all groups.
  static void Append(Branch& branch, const ModelSpec& spec, uint64_t count, bool exact = true) {
    ASSERT_OK_ASSIGN(const uint64_t begin, branch.length());
    KvSet kv(spec, Layout::kContiguous, 0, begin + count);
    kv.Write(kExportSeed, begin, begin + count);
    const std::vector<TokenId> ids = Tokens(count, 100 + begin);
    Delta delta;
    delta.tokens = ids;
    delta.exact = exact;
    if (!spec.groups.empty()) delta.kv = View(&kv, spec, begin, count);
    ASSERT_OK(branch.AppendSync(delta));
  }

  std::string ReadFile(const std::string& path) { return ReadFile(*sim_.disk, path); }
  static std::string ReadFile(io::FileSystem& files, const std::string& path) {
    auto file = files.Open(path, {});
    EXPECT_OK(file);
    if (!file.ok()) return "";
    std::string text(*(*file)->Size(), '\0');
    EXPECT_OK((*file)->Read(0, std::as_writable_bytes(std::span(text))));
    return text;
  }
  void WriteFile(const std::string& path, const std::string& text) {
    auto file = sim_.disk->Open(path, {.write = true, .create = true});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Truncate(0));
    ASSERT_OK((*file)->Write(0, std::as_bytes(std::span(text)), false));
    ASSERT_OK((*file)->Sync());
    ASSERT_OK(sim_.disk->SyncDirectory("/"));
  }
  bool Exists(const std::string& path) { return sim_.disk->Info(path).ok(); }
  static std::vector<std::string> Names(const Store& store, const std::string& ns = "") {
    const auto page = store.ListBranches(ns, "", 1000);
    EXPECT_OK(page);
    std::vector<std::string> names;
    for (const BranchInfo& info : page->branches) names.push_back(info.name);
    return names;
  }

  // Both have the same ids, spans, states, keep, and KV wherever it can be restored.
  static void ExpectSame(const Branch& a, const Branch& b, const ModelSpec& spec) {
    ASSERT_OK_ASSIGN(const BranchInfo one, a.Info());
    ASSERT_OK_ASSIGN(const BranchInfo other, b.Info());
    ASSERT_EQ(one.length, other.length);
    for (size_t i = 0; i < spec.groups.size(); ++i) {
      // Where gaps may be, a length may lie behind the last row that there is.
      if (spec.groups[i].retention.kind != Retention::kAll) continue;
      EXPECT_EQ(one.kv_lengths[i], other.kv_lengths[i]) << i;
    }
    EXPECT_TRUE(one.keep == other.keep);
    ASSERT_OK_ASSIGN(const auto ids, a.ReadTokens(0, one.length));
    ASSERT_OK_ASSIGN(const auto other_ids, b.ReadTokens(0, one.length));
    EXPECT_EQ(ids, other_ids);
    EXPECT_EQ(*a.Spans(0, one.length), *b.Spans(0, one.length));
    for (uint64_t at = 0; at <= one.length; ++at) {
      const auto sampler = a.SamplerAt(at), other_sampler = b.SamplerAt(at);
      ASSERT_EQ(sampler.status().code(), other_sampler.status().code()) << at;
      EXPECT_TRUE(!sampler.ok() || (sampler->position == other_sampler->position &&
                                    *sampler->sampler == *other_sampler->sampler))
          << at;
      const auto metadata = a.MetadataAt(at), other_metadata = b.MetadataAt(at);
      ASSERT_EQ(metadata.status().code(), other_metadata.status().code()) << at;
      EXPECT_TRUE(!metadata.ok() || (metadata->position == other_metadata->position &&
                                     *metadata->metadata == *other_metadata->metadata))
          << at;
      ASSERT_EQ(*a.RestorableLength(at), *b.RestorableLength(at)) << at;
      if (!spec.groups.empty()) ExpectSameKv(a, b, spec, *a.RestorableLength(at));
    }
  }
  static void ExpectSameKv(const Branch& a, const Branch& b, const ModelSpec& spec, uint64_t end) {
    if (end == 0) return;
    const auto restore = [&](const Branch& branch, KvSet* into) {
      RestoreRequest request;
      request.end = end;
      request.into = into->View(0, end);
      auto restored = branch.Restore(request);
      EXPECT_OK(restored);
      return restored.ok() ? *restored : RestoreResult();
    };
    KvSet one(spec, Layout::kContiguous, 0, end), other(spec, Layout::kContiguous, 0, end);
    const RestoreResult of_a = restore(a, &one), of_b = restore(b, &other);
    EXPECT_TRUE(one == other) << "KV up to " << end;
    EXPECT_EQ(of_a.bytes, of_b.bytes) << end;
    EXPECT_EQ(of_a.approximate_bytes, of_b.approximate_bytes) << end;
  }

  io::SimWorld sim_;
  Store from_, into_;
};

}  // namespace cairn::testing
