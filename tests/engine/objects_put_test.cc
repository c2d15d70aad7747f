// SPDX-License-Identifier: Apache-2.0
//
// Property: an object is stored under its key as it was given, whole or not at all, whatever bytes
// key and object have, wherever it lies; what cannot be is refused by name and leaves no trace.
// Method: objects of sizes around a page and a record of the log, put, replaced and deleted, read
// back from log, tables and memory, after reopening, and beside a writer.
#include <algorithm>
#include <thread>

#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

class ObjectPutTest : public ObjectsTest {};

INSTANTIATE_TEST_SUITE_P(Worlds, ObjectPutTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(ObjectPutTest, EverySizeComesBackFromEverywhere) {
  // Pages of 512; a record holds about 100 KiB in such a small segment.
  const std::vector<size_t> sizes = {0,     1,      511,    512,     513,    1024,
                                     70000, 131072, 300001, 1 << 20, 1500000};
  std::vector<std::vector<std::byte>> contents;
  std::vector<std::string> keys;
  for (const size_t size : sizes) {
    contents.push_back(Content(size, size));
    keys.push_back("object of " + std::to_string(size));
  }
  std::vector<ObjectPut> puts;
  for (size_t i = 0; i < sizes.size(); ++i) puts.push_back({.key = keys[i], .value = contents[i]});
  ASSERT_OK_ASSIGN(const std::vector<PutResult> results,
                   Space().PutBatch(puts, {.object_class = class_}));
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_OK(results[i].status) << sizes[i];
    EXPECT_TRUE(results[i].stored) << sizes[i];
  }
  const auto check = [&](const char* from) {
    SCOPED_TRACE(from);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto got = Get(keys[i]);
      ASSERT_TRUE(got.has_value()) << sizes[i];
      EXPECT_TRUE(*got == contents[i]) << sizes[i];
    }
    // Together, into memory with room behind each.
    std::vector<std::vector<std::byte>> into;
    std::vector<ObjectGet> gets;
    for (const size_t size : sizes) into.emplace_back(size + 700, std::byte{0xEE});
    for (size_t i = 0; i < sizes.size(); ++i) gets.push_back({.key = keys[i], .into = into[i]});
    ASSERT_OK_ASSIGN(const std::vector<GetResult> got, Space().GetBatch(gets));
    for (size_t i = 0; i < sizes.size(); ++i) {
      ASSERT_OK(got[i].status);
      EXPECT_EQ(sizes[i], got[i].bytes);
      EXPECT_TRUE(std::equal(contents[i].begin(), contents[i].end(), into[i].begin())) << sizes[i];
    }
  };
  check("the log");
  ASSERT_OK(store_.Compact());
  check("tables");
  Reopen();
  check("tables, nothing in memory");
  ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty());
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(2 * sizes.size(), metrics.objects_got);
}

TEST_P(ObjectPutTest, KeysAreAnyBytes) {
  std::string all;
  for (int c = 0; c < 256; ++c) all.push_back(static_cast<char>(c));
  const std::vector<std::string> keys = {std::string(1, '\0'),
                                         std::string("\0\0", 2),
                                         std::string("\0\1", 2),
                                         "\x01",
                                         std::string("\x01\0", 2),
                                         "\x01\x01",
                                         "\x01\x02",
                                         "\x02",
                                         std::string("a\0b", 3),
                                         "ab",
                                         "\xff",
                                         std::string(256, '\0'),
                                         std::string(256, '\x01'),
                                         all};
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_OK(Put(keys[i], Content(i, 100 + i)).status);
  }
  Reopen();
  std::vector<std::string> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, Keys());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(Content(i, 100 + i), Get(keys[i])) << i;
  ASSERT_OK(Delete(keys[1]));
  EXPECT_FALSE(Has(keys[1]));
  for (size_t i = 2; i < keys.size(); ++i) EXPECT_TRUE(Has(keys[i])) << i;
}

TEST_P(ObjectPutTest, WhatCannotBeIsRefusedAndTheOthersCome) {
  const std::string longest(256, 'k'), longer(257, 'k');
  const auto value = Content(1, 700);
  const std::vector<ObjectPut> puts = {{.key = "", .value = value},
                                       {.key = longer, .value = value},
                                       {.key = longest, .value = value}};
  ASSERT_OK_ASSIGN(const std::vector<PutResult> results,
                   Space().PutBatch(puts, {.object_class = class_}));
  EXPECT_FAILS(results[0].status, StatusCode::kInvalidArgument, "the key has 0 bytes");
  EXPECT_FAILS(results[1].status, StatusCode::kInvalidArgument, "the key has 257 bytes");
  EXPECT_OK(results[2].status);
  EXPECT_EQ((std::vector<std::string>{longest}), Keys());
  const std::string_view bad[] = {longest, longer};
  EXPECT_FAILS(Space().Exists(bad), StatusCode::kInvalidArgument, "key 1: the key has 257 bytes");
  EXPECT_FAILS(Space().Touch(bad), StatusCode::kInvalidArgument, "key 1");
  EXPECT_FAILS(Space().Delete(bad), StatusCode::kInvalidArgument, "key 1");
  EXPECT_FAILS(Space().Stat(longer), StatusCode::kInvalidArgument, "257");
  EXPECT_FAILS(Space().List({}, 0), StatusCode::kInvalidArgument, "no objects");
  std::vector<std::byte> into(700);
  const ObjectGet gets[] = {{.key = "", .into = into}, {.key = longest, .into = into}};
  ASSERT_OK_ASSIGN(const std::vector<GetResult> got, Space().GetBatch(gets));
  EXPECT_FAILS(got[0].status, StatusCode::kInvalidArgument, "the key has 0 bytes");
  EXPECT_OK(got[1].status);
  // More bytes than any object may have; none of them is looked at.
  const ObjectPut large{.key = "large", .value = {value.data(), kMaxObjectBytes + 1}};
  ASSERT_OK_ASSIGN(const std::vector<PutResult> refused,
                   Space().PutBatch({&large, 1}, {.object_class = class_}));
  EXPECT_FAILS(refused[0].status, StatusCode::kInvalidArgument, "at most 1073741824");
  EXPECT_FAILS(Put("a", value, {.ns = std::string_view("a\0b", 3)}).status,
               StatusCode::kInvalidArgument, "namespace holds a NUL");
  EXPECT_FAILS(Put("a", value, {.ns = longer}).status, StatusCode::kInvalidArgument, "257");
  EXPECT_FAILS(Space().SetPolicy("t", {.persist = Persist::kTokensOnly}),
               StatusCode::kInvalidArgument, "policy.persist");
  EXPECT_FAILS(Space().SetPolicy(longer, {}), StatusCode::kInvalidArgument, "257");
  PutOptions options{.object_class = class_};
  options.if_present = static_cast<IfPresent>(2);
  EXPECT_FAILS(Space().PutBatch({}, options), StatusCode::kInvalidArgument, "if_present");
  EXPECT_OK(Put("a", value, {.ns = longest}).status);
  EXPECT_TRUE(Has("a", longest));
}

TEST_P(ObjectPutTest, AClassIsItsShape) {
  EXPECT_EQ(class_, *Space().RegisterClass({.name = "pages", .page_bytes = kPage}));
  EXPECT_FAILS(Space().RegisterClass({.name = "pages", .page_bytes = 1024}),
               StatusCode::kModelMismatch, "row_bytes");
  EXPECT_FAILS(Space().RegisterClass({.name = "", .page_bytes = 1024}),
               StatusCode::kInvalidArgument, "name is empty");
  EXPECT_FAILS(Space().RegisterClass({.name = "small", .page_bytes = 63}),
               StatusCode::kInvalidArgument, "page_bytes is 63");
  EXPECT_FAILS(Space().RegisterClass({.name = "odd", .page_bytes = 65, .dtype = Dtype::kBf16}),
               StatusCode::kInvalidArgument, "row_bytes");
  ASSERT_OK_ASSIGN(const ObjectClassId other,
                   Space().RegisterClass({.name = "kv", .page_bytes = 256, .dtype = Dtype::kBf16}));
  const auto value = Content(3, 1000);
  ASSERT_OK(Put("a", value).status);
  // A model of branches is no class, nor is what nobody registered.
  const ModelId model = Register(TinyModel());
  for (const uint64_t id : {static_cast<uint64_t>(model), uint64_t{4711}}) {
    EXPECT_FAILS(Put("b", value, {.object_class = ObjectClassId{id}}).status,
                 StatusCode::kInvalidArgument, "none that RegisterClass gave");
  }
  EXPECT_FAILS(Put("a", value, {.object_class = other}).status, StatusCode::kModelMismatch,
               "of class \"pages\"");
  std::vector<std::byte> into(1000);
  const ObjectGet get{.key = "a", .into = into};
  ASSERT_OK_ASSIGN(const std::vector<GetResult> got,
                   Space().GetBatch({&get, 1}, {.object_class = other}));
  EXPECT_FAILS(got[0].status, StatusCode::kModelMismatch, "the object is of class");
  // It may take another one.
  const PutResult replaced =
      Put("a", value, {.object_class = other, .if_present = IfPresent::kReplace});
  ASSERT_OK(replaced.status);
  EXPECT_EQ(value, Get("a"));
  EXPECT_EQ("kv", Space().Stat("a")->object_class.name);
}

TEST_P(ObjectPutTest, KeptOrReplaced) {
  const auto one = Content(1, 1300), two = Content(2, 90), three = Content(3, 400'000);
  EXPECT_TRUE(Put("a", one).stored);
  const PutResult kept = Put("a", two);
  EXPECT_OK(kept.status);
  EXPECT_FALSE(kept.stored);
  EXPECT_EQ(one, Get("a"));
  const uint64_t sequence = store_.Metrics().last_sequence;
  EXPECT_OK(Put("a", three).status);
  EXPECT_EQ(sequence, store_.Metrics().last_sequence) << "nothing is written for what is kept";
  for (const auto& next : {two, three, one, three, two}) {
    const PutResult put = Put("a", next, {.if_present = IfPresent::kReplace});
    ASSERT_OK(put.status);
    EXPECT_TRUE(put.stored);
    EXPECT_EQ(next, Get("a"));
    EXPECT_EQ((std::vector<std::string>{"a"}), Keys());
  }
  EXPECT_EQ(1u, Space().Usage()->at(0).branches);
  // Twice in one batch.
  const std::vector<ObjectPut> twice = {
      {.key = "b", .value = one}, {.key = "b", .value = two}, {.key = "b", .value = three}};
  ASSERT_OK(Space().PutBatch(twice, {.object_class = class_}));
  EXPECT_EQ(one, Get("b"));
  ASSERT_OK(Space().PutBatch(twice, {.object_class = class_, .if_present = IfPresent::kReplace}));
  EXPECT_EQ(three, Get("b"));
  Reopen();
  EXPECT_EQ(two, Get("a"));
  EXPECT_EQ(three, Get("b"));
  EXPECT_FAILS(Delete("c"), StatusCode::kNotFound);
  const std::string_view keys[] = {"a", "c", "a", "b"};
  ASSERT_OK_ASSIGN(const std::vector<Status> outcomes, Space().Delete(keys));
  EXPECT_OK(outcomes[0]);
  EXPECT_FAILS(outcomes[1], StatusCode::kNotFound);
  EXPECT_FAILS(outcomes[2], StatusCode::kNotFound);
  EXPECT_OK(outcomes[3]);
  EXPECT_EQ((std::vector<std::string>{}), Keys());
}

TEST_P(ObjectPutTest, TooLittleRoomTellsHowMuchItTakes) {
  const auto value = Content(1, 1300);
  ASSERT_OK(Put("a", value).status);
  ASSERT_OK(Put("none", {}).status);
  for (const size_t room : {0, 100, 1024, 1299}) {
    std::vector<std::byte> into(room);
    const ObjectGet gets[] = {{.key = "a", .into = into}, {.key = "b", .into = into}};
    ASSERT_OK_ASSIGN(const std::vector<GetResult> got, Space().GetBatch(gets));
    EXPECT_FAILS(got[0].status, StatusCode::kInvalidArgument,
                 "the object has 1300 bytes; there is room for " + std::to_string(room));
    EXPECT_EQ(1300u, got[0].bytes);
    EXPECT_FAILS(got[1].status, StatusCode::kNotFound, "no object has this key");
  }
  const ObjectGet none{.key = "none"};
  ASSERT_OK_ASSIGN(const std::vector<GetResult> got, Space().GetBatch({&none, 1}));
  EXPECT_OK(got[0].status);
  EXPECT_EQ(0u, got[0].bytes);
}

// Whichever wins, all get Ok, and the object is what one of them gave.
TEST_P(ObjectPutTest, ManyPutOneKey) {
  if (GetParam() == "simulated") GTEST_SKIP() << "its threads are not the machine's";
  constexpr int kThreads = 4, kTimes = 6;
  for (const size_t bytes : {size_t{900}, size_t{300'000}}) {
    for (const IfPresent if_present : {IfPresent::kKeep, IfPresent::kReplace}) {
      std::atomic<int> stored{0}, failed{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          const auto value = Content(static_cast<uint64_t>(t), bytes);
          for (int i = 0; i < kTimes; ++i) {
            const PutResult put = Put("k" + std::to_string(i), value, {.if_present = if_present});
            stored += put.stored;
            failed += !put.status.ok();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(0, failed);
      EXPECT_EQ(if_present == IfPresent::kKeep ? kTimes : kTimes * kThreads, stored);
      for (int i = 0; i < kTimes; ++i) {
        const auto got = Get("k" + std::to_string(i));
        ASSERT_TRUE(got.has_value());
        bool whole = false;
        for (uint64_t t = 0; t < kThreads; ++t) whole |= *got == Content(t, bytes);
        EXPECT_TRUE(whole) << i;
      }
      EXPECT_EQ(uint64_t{kTimes}, Space().Usage()->at(0).branches);
      for (int i = 0; i < kTimes; ++i) ASSERT_OK(Delete("k" + std::to_string(i)));
    }
  }
}

TEST_P(ObjectPutTest, BranchesAndObjectsDoNotMeet) {
  const auto value = Content(1, 100);
  ASSERT_OK(Put("a", value, {.ns = "t"}).status);
  const ModelId model = Register(TinyModel());
  ASSERT_OK(store_.CreateBranch(model, {.name = "a", .ns = "t"}));
  EXPECT_EQ((std::vector<std::string>{"t"}), NamesOf(store_));
  EXPECT_FALSE(Has("a"));
  const std::string space = "\x01ot";
  EXPECT_FAILS(store_.CreateBranch(model, {.name = "b", .ns = space}), StatusCode::kInvalidArgument,
               "holds objects");
  EXPECT_FAILS(store_.FindBranch("a", space), StatusCode::kInvalidArgument, "holds objects");
  EXPECT_FAILS(store_.ListBranches(space, "", 10), StatusCode::kInvalidArgument, "holds objects");
  EXPECT_FAILS(store_.SetNamespace(space, {}), StatusCode::kInvalidArgument, "holds objects");
  EXPECT_FAILS(store_.FindBranch("a", "t")->ForkAt(0, {.name = "b", .ns = space}),
               StatusCode::kInvalidArgument, "holds objects");
  WriteBatch batch;
  batch.Create(model, {.name = "b", .ns = space});
  EXPECT_FAILS(store_.Write(batch), StatusCode::kInvalidArgument, "holds objects");
  for (uint64_t id = 0; id < 20; ++id) {
    const auto branch = store_.GetBranch(BranchId{id});
    if (branch.ok()) {
      EXPECT_EQ("t", branch->Info()->ns);
    }
  }
  ASSERT_OK(store_.FindBranch("a", "t")->Drop());
  EXPECT_EQ(value, Get("a", "t"));
}

}  // namespace
}  // namespace cairn::testing
