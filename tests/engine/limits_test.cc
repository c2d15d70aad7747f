// SPDX-License-Identifier: Apache-2.0
//
// Property: what is accepted can be sealed, compacted, checkpointed, verified, evicted, restored
// and reopened; what is not is kInvalidArgument naming the field, and applies nothing
// (cairn/limits.h). Method: every size, count and string of the API at 0, 1, limit - 1, limit,
// limit + 1; with real payload up to 64 MiB, and 2^31, 2^32 and the largest value through the
// checks alone.
#include "cairn/limits.h"

#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "tests/engine/engine_test.h"
#include "tests/support/source_dir.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kFar[] = {uint64_t{1} << 31, uint64_t{1} << 32, UINT64_MAX};

TEST(LimitsTest, TheDocumentHasThem) {
  std::map<std::string, uint64_t> said, have;
  std::ifstream file(SourcePath("/docs/limits.md"));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `")) continue;
    const size_t name_end = line.find("` | ");
    ASSERT_NE(std::string::npos, name_end) << line;
    said[line.substr(3, name_end - 3)] = std::stoull(line.substr(name_end + 4));
  }
  for (const Limit& limit : kLimits) have[limit.field] = limit.value;
  EXPECT_EQ(std::size(kLimits), have.size());
  EXPECT_EQ(have, said) << "docs/limits.md needs a row of each limit of kLimits in cairn/limits.h";
}

// Small segments, so that little is sealed at a time; records of 8 MiB.
Options SmallOptions(const TestWorld& world) {
  Options options = world.options();
  options.max_memory_bytes = 256u << 20;
  options.hot_tail_bytes = 32u << 20;
  options.segment_bytes = 8u << 20;
  options.executor_threads = 1;
  return options;
}

// Everything a store does with what it has accepted.
class LifeTest : public ::testing::Test {
 protected:
  void Open(const Options& options) {
    ASSERT_OK(store_.Close());
    ASSERT_OK_ASSIGN(store_, world_->Open(options));
  }
  // `check` looks at a store's content.
  void Live(const Options& options, const std::function<void(const Store&)>& check) {
    check(store_);
    ASSERT_OK(store_.Compact());
    ASSERT_NO_FATAL_FAILURE(Verify());
    ASSERT_OK(store_.Checkpoint("/copy"));
    check(store_);
    ASSERT_NO_FATAL_FAILURE(Open(options));
    ASSERT_NO_FATAL_FAILURE(Verify());
    check(store_);
    ASSERT_OK(store_.Close());
    Options copied = options;
    copied.world = std::make_shared<io::World>(world_->world());
    ASSERT_OK_ASSIGN(Store copy, Store::Open("/copy", copied));
    check(copy);
  }
  void Verify() {
    ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
    ASSERT_TRUE(report.damages.empty()) << report.damages[0].where << report.damages[0].what;
  }
  std::unique_ptr<TestWorld> world_ = TestWorld::Make("memory");
  Store store_;
};

TEST_F(LifeTest, Names) {
  const Options options = SmallOptions(*world_);
  ASSERT_NO_FATAL_FAILURE(Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(TokenModel()));
  const auto name = [](uint64_t bytes) { return std::string(bytes, 'n'); };
  std::vector<std::pair<std::string, std::string>> names;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kMaxNameBytes - 1, kMaxNameBytes}) {
    names.emplace_back(name(bytes), name(bytes));
    NamespacePolicy policy;
    policy.evict = Evict::kBranches;
    ASSERT_OK(store_.SetNamespace(name(bytes), policy));
    ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model, {.name = "x", .ns = name(bytes)}));
    ASSERT_OK(branch.Rename(name(bytes)));
    ASSERT_OK(branch.AppendSync(MakeDelta(Tokens(3))));
    ASSERT_OK(branch.SetKeep({.priority = 1, .ttl_ns = UINT64_MAX}));
  }
  const uint64_t records = store_.Metrics().log_records;
  for (const uint64_t bytes : {kMaxNameBytes + 1, uint64_t{65536}}) {
    EXPECT_FAILS(store_.CreateBranch(model, {.name = name(bytes)}), StatusCode::kInvalidArgument,
                 "name has");
    EXPECT_FAILS(store_.CreateBranch(model, {.ns = name(bytes)}), StatusCode::kInvalidArgument,
                 "namespace has");
    EXPECT_FAILS(store_.SetNamespace(name(bytes), {}), StatusCode::kInvalidArgument, "namespace");
    ASSERT_OK_ASSIGN(Branch branch, store_.FindBranch("n", "n"));
    EXPECT_FAILS(branch.Rename(name(bytes)), StatusCode::kInvalidArgument, "name has");
    EXPECT_FAILS(branch.ForkAt(1, {.name = name(bytes)}), StatusCode::kInvalidArgument, "name has");
    WriteBatch batch;
    batch.Create(model, {.name = name(bytes)});
    EXPECT_FAILS(store_.Write(batch), StatusCode::kInvalidArgument, "name has");
    EXPECT_FAILS(store_.FindBranch(name(bytes)), StatusCode::kNotFound);
  }
  EXPECT_FAILS(store_.CreateBranch(model, {.name = std::string("a\0b", 3)}),
               StatusCode::kInvalidArgument, "NUL");
  EXPECT_EQ(records, store_.Metrics().log_records);
  Live(options, [&](const Store& store) {
    for (const auto& [branch, ns] : names) {
      ASSERT_OK_ASSIGN(const BranchPage page, store.ListBranches(ns, branch, 10));
      ASSERT_EQ(1u, page.branches.size());
      EXPECT_EQ(branch, page.branches[0].name);
      EXPECT_EQ(3u, page.branches[0].length);
    }
  });
}

TEST(LimitsTest, Models) {
  const auto at = [](auto set, uint64_t limit, const std::string& field, bool from_0 = false) {
    SCOPED_TRACE(field);
    for (const uint64_t value : {uint64_t{0}, uint64_t{1}, limit - 1, limit, limit + 1}) {
      ModelSpec spec = TinyModel();
      set(spec, value);
      if (value <= limit && (value != 0 || from_0)) {
        EXPECT_OK(spec.Validate()) << value;
      } else {
        EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, field) << value;
      }
    }
  };
  const auto text = [](uint64_t bytes) { return std::string(bytes, 't'); };
  at([&](ModelSpec& m, uint64_t n) { m.identity.name = text(n); }, kMaxIdentityBytes,
     "identity.name");
  at([&](ModelSpec& m, uint64_t n) { m.identity.cache_dtype = text(n); }, kMaxIdentityBytes,
     "identity.cache_dtype", true);
  at([&](ModelSpec& m, uint64_t n) { m.variant.digest = text(n); }, kMaxIdentityBytes,
     "variant.digest", true);
  at([&](ModelSpec& m, uint64_t n) { m.groups[0].name = text(n); }, kMaxGroupNameBytes,
     "groups[0].name", true);
  at([&](ModelSpec& m, uint64_t n) { m.groups[0].planes[1].name = text(n); }, kMaxGroupNameBytes,
     "groups[0].planes[1].name", true);
  at(
      [&](ModelSpec& m, uint64_t n) {
        m.groups = {LayerGroup::Recurrent(1, 64)};
        m.groups[0].packing = text(n);
      },
      kMaxGroupNameBytes, "groups[0].packing", true);
  at([](ModelSpec& m, uint64_t n) { m.groups[0].inv_freq.assign(n, 1.0F); }, kMaxInvFreq,
     "groups[0].inv_freq", true);
  at([](ModelSpec& m, uint64_t n) { m.groups[0].layers = static_cast<uint32_t>(n); }, kMaxLayers,
     "groups[0].layers");
  at([](ModelSpec& m, uint64_t n) { m.groups[0].planes.resize(n, m.groups[0].planes[0]); },
     kMaxPlanes, "groups[0].planes");
  at([](ModelSpec& m, uint64_t n) { m.groups[0].planes[1].heads = static_cast<uint32_t>(n); },
     kMaxHeads, "groups[0].planes[1].heads");
  at([](ModelSpec& m,
        uint64_t n) { m.groups = {LayerGroup::Recurrent(1, static_cast<uint32_t>(n))}; },
     kMaxRowBytes, "groups[0].planes[0].row_bytes");
  at(
      [](ModelSpec& m, uint64_t n) {
        for (uint64_t i = 0; i < n; ++i) {
          if (i != 0) m.groups.push_back(m.groups[0]);
          m.groups.back().name = std::to_string(i);
        }
        if (n == 0) m.groups.clear();
      },
      kMaxLayerGroups, "groups", true);
  // The limits of a position, and of its heads: a layer more is too much.
  ModelSpec spec = TinyModel();
  spec.groups = {LayerGroup::Recurrent(16, kMaxRowBytes)};
  EXPECT_EQ(kMaxPositionBytes, spec.token_bytes());
  EXPECT_OK(spec.Validate());
  spec.groups[0].layers = 17;
  EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, "groups[0]: a position takes");
  spec.groups = {LayerGroup::FullAttention(8, 65536, 1, Dtype::kI8)};
  EXPECT_OK(spec.Validate());
  spec.groups[0].layers = 9;
  EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, "groups[0].planes");
  for (const uint32_t extent : {0u, 64u, 4096u}) {
    spec = TinyModel();
    spec.extent_tokens = extent;
    EXPECT_OK(spec.Validate());
  }
  for (const uint32_t extent : {1u, 63u, 65u, 4097u, 8192u, 1u << 31, UINT32_MAX}) {
    spec.extent_tokens = extent;
    EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, "extent_tokens");
  }
}

// A preset cannot fail; what it makes of numbers that are too large is refused.
TEST(LimitsTest, PresetsDoNotWrapAround) {
  const auto refused = [](const LayerGroup& group, const std::string& field) {
    ModelSpec spec = TinyModel();
    spec.groups = {group};
    EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, field);
  };
  for (const uint32_t far : {1u << 30, 1u << 31, (1u << 31) + 64, UINT32_MAX}) {
    refused(LayerGroup::FullAttention(1, 1, far, Dtype::kF32), "row_bytes");
    refused(LayerGroup::FullAttention(1, 1, far, Dtype::kBf16), "row_bytes");
    refused(LayerGroup::SlidingWindow(1, 1, far, Dtype::kF32, 8, 0), "row_bytes");
    refused(LayerGroup::FullAttention(1, far, 8, Dtype::kBf16), "heads");
    refused(LayerGroup::FullAttention(far, 1, 8, Dtype::kBf16), "layers");
    refused(LayerGroup::Mla(1, far, 0, Dtype::kBf16), "row_bytes");
    refused(LayerGroup::Mla(1, 64, far, Dtype::kBf16), "row_bytes");
    refused(LayerGroup::Recurrent(1, far), "row_bytes");
    refused(LayerGroup::Recurrent(far, 64), "layers");
  }
  refused(LayerGroup::FullAttention(1, 1, 8, static_cast<Dtype>(200)), "dtype is unknown");
}

TEST(LimitsTest, NumbersThatAreNoneAreNamed) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    ModelSpec spec = TinyModel();
    spec.variant.scale = bad;
    EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, "variant.scale");
    spec = TinyModel();
    spec.groups[0].mscale = static_cast<float>(bad);
    EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, "groups[0].mscale");
    spec = TinyModel();
    spec.groups[0].inv_freq = {1.0F, static_cast<float>(bad)};
    EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, "groups[0].inv_freq[1]");
  }
}

// Sizes that no memory is behind: the checks come first.
TEST_F(LifeTest, FarBeyondEveryLimit) {
  ASSERT_NO_FATAL_FAILURE(Open(world_->options()));
  const ModelSpec spec = TinyModel();
  ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model, {.name = "chat"}));
  ASSERT_OK(AppendSome(chat, spec, 0, 4));
  const std::vector<TokenId> one = Tokens(1);
  const ContentSpan span{.begin = 4, .end = 5};
  KvSet kv(spec, Layout::kContiguous, 4, 1);
  const uint64_t records = store_.Metrics().log_records;
  const auto refused = [&](const Delta& delta, const std::string& field) {
    EXPECT_FAILS(chat.AppendSync(delta), StatusCode::kInvalidArgument, field);
    EXPECT_FAILS(chat.Append(delta), StatusCode::kInvalidArgument, field);
    WriteBatch batch;
    batch.Append(chat, delta);
    EXPECT_FAILS(store_.Write(batch), StatusCode::kInvalidArgument, field);
  };
  for (const uint64_t far : {kMaxAppendTokens + 1, kFar[0], kFar[1], SIZE_MAX / sizeof(TokenId)}) {
    refused(MakeDelta(std::span(one.data(), far)), "tokens has");
    EXPECT_FAILS(chat.BeginAppend(far), StatusCode::kInvalidArgument, "positions is");
  }
  for (const uint64_t far : {kMaxAppendSpans + 1, kFar[0], kFar[1]}) {
    Delta delta = MakeDelta(one);
    delta.spans = std::span(&span, far);
    refused(delta, "spans has");
  }
  for (const uint64_t far : {kMaxAppendTokens + 1, kFar[0], kFar[1], UINT64_MAX - 4}) {
    GroupView view = kv.View(4, 1)->groups[0];
    view.count = far;
    const KvView wide{.groups = std::span(&view, 1)};
    refused({.tokens = one, .kv = &wide}, "group 0: count is");
    EXPECT_FAILS(chat.Fill(wide), StatusCode::kInvalidArgument, "group 0: count is");
  }
  for (const uint64_t far : kFar) {
    if (far != UINT64_MAX) {
      EXPECT_FAILS(chat.ReadTokens(0, far), StatusCode::kInvalidArgument, "of 4 tokens");
      EXPECT_FAILS(chat.Spans(0, far), StatusCode::kInvalidArgument, "of 4 tokens");
      EXPECT_FAILS(chat.EvictedKv(0, far), StatusCode::kInvalidArgument, "of 4 tokens");
      EXPECT_FAILS(chat.Prefetch(0, far), StatusCode::kInvalidArgument, "of 4 tokens");
      EXPECT_FAILS(chat.Restore({.end = far}), StatusCode::kInvalidArgument, "of 4 tokens");
    }
    EXPECT_FAILS(chat.ReadTokens(far, UINT64_MAX), StatusCode::kInvalidArgument, "of 4 tokens");
    EXPECT_FAILS(chat.ForkAt(far, {}), StatusCode::kInvalidArgument, "4 tokens");
    EXPECT_FAILS(chat.Rewind(far), StatusCode::kInvalidArgument, "4 tokens");
    EXPECT_EQ(4u, *chat.RestorableLength(far));
    EXPECT_FAILS(chat.SamplerAt(far), StatusCode::kNotFound);
  }
  EXPECT_EQ(records, store_.Metrics().log_records);
}

TEST_F(LifeTest, RangesAreNeverClipped) {
  ASSERT_NO_FATAL_FAILURE(Open(world_->options()));
  const ModelSpec spec = TinyModel();
  ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model, {.name = "chat"}));
  ASSERT_OK(AppendSome(chat, spec, 0, 10));
  const std::vector<std::pair<const char*, std::function<Status(uint64_t, uint64_t)>>> calls = {
      {"ReadTokens", [&](uint64_t b, uint64_t e) { return chat.ReadTokens(b, e).status(); }},
      {"Spans", [&](uint64_t b, uint64_t e) { return chat.Spans(b, e).status(); }},
      {"EvictedKv", [&](uint64_t b, uint64_t e) { return chat.EvictedKv(b, e).status(); }},
      {"Prefetch", [&](uint64_t b, uint64_t e) { return chat.Prefetch(b, e); }},
      {"Restore",
       [&](uint64_t b, uint64_t e) { return chat.Restore({.begin = b, .end = e}).status(); }}};
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
             {0, 0}, {0, 10}, {3, 7}, {10, 10}, {0, UINT64_MAX}, {10, UINT64_MAX}}) {
      EXPECT_OK(call(begin, end)) << begin << ", " << end;
    }
    for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
             {0, 11}, {11, 11}, {4, 3}, {11, UINT64_MAX}, {0, UINT64_MAX - 1}}) {
      EXPECT_FAILS(call(begin, end), StatusCode::kInvalidArgument, "a branch of 10 tokens");
    }
  }
  EXPECT_EQ(10u, chat.ReadTokens(0, UINT64_MAX)->size());
}

TEST_F(LifeTest, ValuesThatDoNotExistAreNamed) {
  ASSERT_NO_FATAL_FAILURE(Open(world_->options()));
  ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model, {.name = "chat"}));
  ASSERT_OK(chat.AppendSync(MakeDelta(Tokens(2))));
  const uint64_t records = store_.Metrics().log_records;
  const auto bad = static_cast<Durability>(3);
  const auto refused = [](const Status& status, const std::string& field) {
    EXPECT_EQ(StatusCode::kInvalidArgument, status.code()) << status.ToString();
    EXPECT_NE(std::string::npos, status.message().find(field)) << status.ToString();
  };
  const std::vector<TokenId> one = Tokens(1);
  WriteBatch batch;
  batch.Rewind(chat, 1);
  refused(store_.RegisterModel(TokenModel(), bad).status(), "durability 3");
  refused(store_.RegisterModel(TinyModel(), bad).status(), "durability 3");
  refused(store_.CreateBranch(model, {.durability = bad}).status(), "durability 3");
  refused(store_.SetNamespace("n", {}, bad), "durability 3");
  refused(store_.Write(batch, {.durability = bad}).status(), "durability 3");
  refused(chat.AppendSync(MakeDelta(one), {.durability = bad}).status(), "durability 3");
  refused(chat.Append(MakeDelta(one), {.durability = bad}).status(), "durability 3");
  refused(chat.ForkAt(1, {.durability = bad}).status(), "durability 3");
  refused(chat.SetKeep({}, bad), "durability 3");
  refused(chat.Rewind(1, bad), "durability 3");
  refused(chat.Rename("x", bad), "durability 3");
  refused(chat.Drop(bad), "durability 3");
  const auto overload = static_cast<Overload>(2);
  refused(chat.Append(MakeDelta(one), {.overload = overload}).status(), "overload");
  refused(chat.AppendSync(MakeDelta(one), {.overload = overload}).status(), "overload");
  refused(store_.Write(batch, {.overload = overload}).status(), "overload");
  SamplerState sampler;
  sampler.generator = static_cast<GeneratorKind>(4);
  Delta delta = MakeDelta(one);
  delta.sampler = &sampler;
  refused(chat.AppendSync(delta).status(), "sampler.generator");
  NamespacePolicy policy;
  policy.evict = static_cast<Evict>(3);
  refused(store_.SetNamespace("n", policy), "policy.evict");
  policy = {};
  policy.persist = static_cast<Persist>(4);
  refused(store_.SetNamespace("n", policy), "policy.persist");
  policy = {};
  policy.index = static_cast<Index>(3);
  refused(store_.SetNamespace("n", policy), "policy.index");
  refused(store_.Verify(static_cast<VerifyLevel>(3)).status(), "level");
  refused(store_.Checkpoint(":memory:").status(), ":memory:");
  refused(store_.Checkpoint("").status(), "path");
  EXPECT_EQ(records, store_.Metrics().log_records);
  const auto option = [&](auto set, const std::string& field) {
    Options options = TinyOptions();
    set(options);
    refused(Store::Open(":memory:", options).status(), "options." + field);
  };
  option([](Options& o) { o.evict = static_cast<Evict>(3); }, "evict");
  option([](Options& o) { o.index = Index::kChunks; }, "index");
  option([](Options& o) { o.index = static_cast<Index>(3); }, "index");
  option([](Options& o) { o.backend = static_cast<Backend>(3); }, "backend");
  option([](Options& o) { o.on_fatal = static_cast<FatalAction>(2); }, "on_fatal");
  const auto spec = [&](auto set, const std::string& field) {
    ModelSpec changed = TinyModel();
    set(changed);
    refused(store_.RegisterModel(changed).status(), field);
  };
  spec([](ModelSpec& m) { m.groups[0].planes[0].dtype = static_cast<Dtype>(8); }, "dtype");
  spec([](ModelSpec& m) { m.groups[0].planes[0].role = static_cast<PlaneRole>(0); }, "role");
  spec([](ModelSpec& m) { m.groups[0].planes[0].role = static_cast<PlaneRole>(7); }, "role");
  spec([](ModelSpec& m) { m.groups[0].planes[0].sealed_as = static_cast<SealedAs>(2); },
       "sealed_as");
  spec([](ModelSpec& m) { m.groups[0].retention.kind = static_cast<Retention>(6); },
       "retention.kind");
}

// Whatever a number of the options is: refused by its name, or the store works.
TEST(LimitsTest, NumbersOfOptions) {
  const auto each = [](auto set, const std::string& field, std::vector<uint64_t> values) {
    values.insert(values.end(), {0, 1, kFar[0], kFar[1], UINT64_MAX - 1, UINT64_MAX});
    for (const uint64_t value : values) {
      SCOPED_TRACE(field + " " + std::to_string(value));
      Options options = TinyOptions();
      options.executor_threads = 1;
      set(options, value);
      auto store = Store::Open(":memory:", options);
      if (!store.ok()) {
        EXPECT_EQ(StatusCode::kInvalidArgument, store.status().code());
        EXPECT_NE(std::string::npos, store.status().message().find(field))
            << store.status().ToString();
        continue;
      }
      ASSERT_OK_ASSIGN(const ModelId model, store->RegisterModel(TinyModel()));
      ASSERT_OK_ASSIGN(Branch chat, store->CreateBranch(model));
      ASSERT_OK(AppendSome(chat, TinyModel(), 0, 70));
      ASSERT_OK_ASSIGN(Ticket ticket, chat.Append(MakeDelta(Tokens(1))));
      ASSERT_OK(store->Compact());
      EXPECT_TRUE(HasKv(chat, TinyModel(), 0, 70));
      ASSERT_OK(store->Close());
      EXPECT_OK(ticket.Wait());
    }
  };
  each([](Options& o, uint64_t n) { o.segment_bytes = n; }, "segment_bytes",
       {kMinSegmentBytes - 4096, kMinSegmentBytes + 1});
  each([](Options& o, uint64_t n) { o.max_bytes = n; }, "max_bytes", {1u << 20, 4u << 20});
  each([](Options& o, uint64_t n) { o.log_bytes_max = n; }, "log_bytes_max", {});
  each([](Options& o, uint64_t n) { o.snapshot_interval_tokens = n; }, "snapshot_interval_tokens",
       {});
  each([](Options& o, uint64_t n) { o.max_delta_chain = n; }, "max_delta_chain", {});
  each([](Options& o, uint64_t n) { o.replay_records_max = n; }, "replay_records_max", {});
  each([](Options& o, uint64_t n) { o.background_bytes_per_second = n; },
       "background_bytes_per_second", {kMinBackgroundRate - 1});
  each([](Options& o, uint64_t n) { o.max_memory_bytes = n; }, "memory_bytes",
       {kMinMemoryBytes - 1, kMinMemoryBytes});
  each([](Options& o, uint64_t n) { o.hot_tail_bytes = n; }, "hot_tail_bytes",
       {kMinHotTailBytes - 1, kMinHotTailBytes});
  each([](Options& o, uint64_t n) { o.submit_copy_max_bytes = n; }, "submit_copy_max_bytes",
       {kMaxSubmitCopyBytes, kMaxSubmitCopyBytes + 1});
  each([](Options& o, uint64_t n) { o.tree_memory_bytes = n; }, "tree_memory_bytes", {});
  each([](Options& o, uint64_t n) { o.reuse_memory_bytes = n; }, "reuse_memory_bytes", {});
  each([](Options& o, uint64_t n) { o.delta_batch_wait_ns = n; }, "delta_batch_wait_ns",
       {kMaxDeltaBatchWaitNs, kMaxDeltaBatchWaitNs + 1});
  each([](Options& o, uint64_t n) { o.delta_batch_tokens = static_cast<uint32_t>(n); },
       "delta_batch_tokens", {kMaxDeltaBatchTokens, kMaxDeltaBatchTokens + 1});
  each([](Options& o, uint64_t n) { o.executor_threads = static_cast<uint32_t>(n); },
       "executor_threads", {kMaxExecutorThreads + 1});
  each([](Options& o, uint64_t n) { o.spare_segments_max = static_cast<uint32_t>(n); },
       "spare_segments", {kMaxSpareSegments + 1});
}

// 64 MiB of ids in one append.
TEST_F(LifeTest, Ids) {
  const Options options = SmallOptions(*world_);
  ASSERT_NO_FATAL_FAILURE(Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model, {.name = "chat"}));
  std::vector<TokenId> ids(kMaxAppendTokens);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i % 50'000);
  ASSERT_OK(chat.AppendSync(MakeDelta(ids)));
  EXPECT_EQ(ids, *chat.ReadTokens(0, UINT64_MAX));
  Live(options, [&](const Store& store) {
    ASSERT_OK_ASSIGN(const Branch found, store.FindBranch("chat"));
    EXPECT_EQ(kMaxAppendTokens, *found.length());
    EXPECT_EQ(ids.back(), found.ReadTokens(ids.size() - 1, ids.size())->front());
  });
}

// As many spans as there may be, and states at the edges of what a record has room for.
TEST_F(LifeTest, SpansAndStates) {
  const Options options = SmallOptions(*world_);
  ASSERT_NO_FATAL_FAILURE(Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model, {.name = "chat"}));
  const std::vector<TokenId> ids = Tokens(kMaxAppendSpans);
  std::vector<ContentSpan> spans;
  for (uint64_t i = 0; i < kMaxAppendSpans; ++i) {
    spans.push_back({.begin = i, .end = i + 1, .hash = {i, i}, .atomic = true});
  }
  Delta delta = MakeDelta(ids);
  delta.spans = spans;
  ASSERT_OK(chat.AppendSync(delta));
  // The largest metadata that this log takes, found by asking.
  AppMetadata metadata;
  delta = {};
  delta.metadata = &metadata;
  uint64_t taken = 0, refused = kMaxStateBytes;
  while (refused - taken > 1) {
    metadata.bytes.resize((taken + refused) / 2);
    const uint64_t records = store_.Metrics().log_records;
    const Status status = chat.AppendSync(delta).status();
    if (status.ok()) {
      taken = metadata.bytes.size();
      continue;
    }
    refused = metadata.bytes.size();
    EXPECT_EQ(StatusCode::kInvalidArgument, status.code()) << status.ToString();
    EXPECT_NE(std::string::npos, status.message().find("sampler, metadata and spans"));
    ASSERT_EQ(records, store_.Metrics().log_records);
  }
  EXPECT_LT(3u << 20, taken);
  // With as many ids and KV as one record has beside it: nothing is refused late.
  metadata.bytes.assign(taken, std::byte{9});
  const std::vector<TokenId> more = Tokens(1 << 20);
  delta.tokens = more;
  ASSERT_OK(chat.AppendSync(delta));
  Live(options, [&](const Store& store) {
    ASSERT_OK_ASSIGN(const Branch found, store.FindBranch("chat"));
    EXPECT_EQ(spans, *found.Spans(0, UINT64_MAX));
    EXPECT_EQ(metadata, found.MetadataAt(UINT64_MAX)->metadata);
  });
}

// As many heads as a plane may have, a frame each. (Layers of them up to the limit take as many
// times as long.)
TEST_F(LifeTest, Heads) {
  const Options options = SmallOptions(*world_);
  ASSERT_NO_FATAL_FAILURE(Open(options));
  ModelSpec spec = TokenModel();
  spec.groups = {LayerGroup::FullAttention(1, kMaxHeads, 1, Dtype::kI8)};
  ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model, {.name = "chat"}));
  ASSERT_OK(AppendSome(chat, spec, 0, 3));
  Live(options, [&](const Store& store) {
    ASSERT_OK_ASSIGN(const Branch found, store.FindBranch("chat"));
    EXPECT_TRUE(HasKv(found, spec, 0, 3));
  });
}

TEST_F(LifeTest, ATimeoutOfZeroWaitsForNothing) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  const ModelSpec spec = WideModel();
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  ASSERT_OK_ASSIGN(CompletionQueue queue, store.NewCompletionQueue());
  KvSet kv(spec, Layout::kContiguous, 0, 40);
  kv.Write(kSeed, 0, 40);
  const std::vector<TokenId> ids = Tokens(40);
  const auto delta = [&](uint64_t begin, uint64_t count) {
    return Delta{.tokens = std::span(ids).subspan(begin, count), .kv = kv.View(begin, count)};
  };
  const auto one = [&](uint64_t at) { return delta(at, 1); };
  // A ticket may be over either way: the log may have been faster than the clock.
  const auto over = [](const Status& status) {
    return status.ok() || status.code() == StatusCode::kUnknownOutcome;
  };
  // Blocking appends: in memory they are done; beyond that nobody waits to see them written.
  EXPECT_OK(chat.AppendSync(one(0), {.durability = Durability::kMemory, .timeout_ns = 0}));
  EXPECT_FAILS(chat.AppendSync(one(1), {.durability = Durability::kPower, .timeout_ns = 0}),
               StatusCode::kUnknownOutcome);
  EXPECT_EQ(2u, *chat.length());
  // One in parts is not applied.
  EXPECT_FAILS(chat.AppendSync(delta(2, 20), {.timeout_ns = 0}), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(2u, *chat.length());
  // Tickets, and waits for them.
  EXPECT_FALSE(queue.Wait(0));
  ASSERT_OK_ASSIGN(Ticket slow, chat.Append(one(2), {.durability = Durability::kPower}));
  EXPECT_FAILS(slow.Wait(0), StatusCode::kDeadlineExceeded, "the wait timed out");
  EXPECT_OK(slow.Wait());
  EXPECT_OK(slow.Wait(0));
  ASSERT_OK_ASSIGN(
      Ticket cut,
      chat.Append(one(3), {.durability = Durability::kPower, .timeout_ns = 0, .queue = &queue}));
  EXPECT_TRUE(over(cut.Wait()));
  EXPECT_TRUE(queue.Wait(0));
  EXPECT_EQ(4u, *chat.length());
  ASSERT_OK_ASSIGN(Ticket parts, chat.Append(delta(4, 20), {.timeout_ns = 0}));
  EXPECT_FAILS(parts.Wait(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(4u, *chat.length());
  WriteBatch batch;
  batch.Append(chat, one(4));
  ASSERT_OK_ASSIGN(auto written,
                   store.Write(batch, {.durability = Durability::kPower, .timeout_ns = 0}));
  EXPECT_TRUE(over(written.ticket.Wait()));
  EXPECT_EQ(5u, *chat.length());
  // Fill.
  ASSERT_OK(chat.AppendSync(MakeDelta(std::span(ids).subspan(5, 1))));
  EXPECT_FAILS(chat.Fill(*kv.View(5, 1), {.durability = Durability::kPower, .timeout_ns = 0}),
               StatusCode::kUnknownOutcome);
  EXPECT_EQ(6u, chat.Info()->kv_lengths[0]);
  // Restores: out of memory they are whole, from the disk they are not begun.
  KvSet back(spec, Layout::kContiguous, 0, 6);
  RestoreRequest request;
  request.into = back.View(0, 6);
  request.timeout_ns = 0;
  EXPECT_OK(chat.Restore(request));
  ASSERT_OK(store.Compact());
  ASSERT_OK(store.Close());
  ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(chat, store.FindBranch("chat"));
  EXPECT_FAILS(chat.Restore(request), StatusCode::kDeadlineExceeded);
  ASSERT_OK_ASSIGN(Ticket restored, chat.RestoreAsync(request));
  EXPECT_FAILS(restored.Wait(), StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace cairn::testing
