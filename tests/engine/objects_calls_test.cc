// SPDX-License-Identifier: Apache-2.0
//
// Property: each key of a call has a status, and a ticket, of its own; who gives up gives up what
// has not begun; an object that is being replaced is the old or the new one; a reader beside looks
// and changes nothing.
// Method: batches by queue, cancelled, out of time, against each other, and by a follower.
#include <thread>

#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

class ObjectCallsTest : public ObjectsTest {};

INSTANTIATE_TEST_SUITE_P(Worlds, ObjectCallsTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(ObjectCallsTest, EachHasItsTicket) {
  ASSERT_OK_ASSIGN(CompletionQueue queue, store_.NewCompletionQueue());
  constexpr size_t kCount = 300;
  std::vector<std::vector<std::byte>> values;
  std::vector<std::string> keys;
  std::vector<ObjectPut> puts;
  for (size_t i = 0; i < kCount; ++i) {
    values.push_back(Content(i, i * 17));
    keys.push_back("key " + std::to_string(i));
  }
  keys[7] = std::string(300, 'x');
  for (size_t i = 0; i < kCount; ++i) {
    puts.push_back({.key = keys[i], .value = values[i], .user_data = i});
  }
  const auto drain = [&] {
    std::vector<Completion> all(kCount);
    for (size_t seen = 0; seen < kCount;) {
      EXPECT_TRUE(queue.Wait(20'000'000'000));
      const auto some = queue.Drain();
      if (some.empty()) break;
      for (const Completion& one : some) all[one.user_data] = one;
      seen += some.size();
    }
    return all;
  };
  ASSERT_OK_ASSIGN(
      std::vector<Ticket> tickets,
      Space().PutBatchAsync(
          puts, {.object_class = class_, .durability = Durability::kPower, .queue = &queue}));
  ASSERT_EQ(kCount, tickets.size());
  for (const Completion& one : drain()) {
    if (one.user_data == 7) {
      EXPECT_FAILS(one.status, StatusCode::kInvalidArgument, "300 bytes");
      continue;
    }
    EXPECT_OK(one.status);
    EXPECT_EQ(one.user_data * 17, one.ticket.length());
  }
  std::vector<std::vector<std::byte>> into;
  std::vector<ObjectGet> gets;
  for (size_t i = 0; i < kCount; ++i) into.emplace_back(i * 17);
  for (size_t i = 0; i < kCount; ++i) {
    gets.push_back({.key = keys[i], .into = into[i], .user_data = i});
  }
  gets[9].key = "no such key";
  ASSERT_OK(Space().GetBatchAsync(gets, {.queue = &queue}));
  for (const Completion& one : drain()) {
    if (one.user_data == 7 || one.user_data == 9) {
      EXPECT_FALSE(one.status.ok());
      continue;
    }
    EXPECT_OK(one.status);
    EXPECT_EQ(values[one.user_data], into[one.user_data]);
  }
  EXPECT_FAILS(Space().PutBatchAsync(puts, {.object_class = ObjectClassId{99}}),
               StatusCode::kInvalidArgument, "RegisterClass");
}

TEST_P(ObjectCallsTest, ACancelledPutComesWholeOrNotAtAll) {
  constexpr size_t kCount = 12;
  std::vector<std::vector<std::byte>> values;
  std::vector<std::string> keys;
  for (size_t i = 0; i < kCount; ++i) {
    values.push_back(Content(i, 200'000 + i));
    keys.push_back("key " + std::to_string(i));
  }
  std::vector<ObjectPut> puts;
  for (size_t i = 0; i < kCount; ++i) puts.push_back({.key = keys[i], .value = values[i]});
  ASSERT_OK_ASSIGN(std::vector<Ticket> tickets,
                   Space().PutBatchAsync(puts, {.object_class = class_}));
  const Status cancelled = tickets.back().Cancel();
  for (size_t i = 0; i + 1 < kCount; ++i) {
    EXPECT_OK(tickets[i].Wait());
    EXPECT_EQ(values[i], Get(keys[i]));
  }
  const auto got = Get(keys.back());
  EXPECT_EQ(cancelled.code() == StatusCode::kCancelled, !got.has_value()) << cancelled.ToString();
  if (got.has_value()) {
    EXPECT_EQ(values.back(), *got);
  }
}

TEST_P(ObjectCallsTest, AFollowerLooksAndChangesNothing) {
  const auto value = Content(1, 5000);
  ASSERT_OK(Put("a", value).status);
  ASSERT_OK(store_.Flush());
  Options options = world_->options();
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(Store follower, world_->Open(options));
  Objects seen(follower);
  EXPECT_EQ(value, Get(seen, "a"));
  const std::string_view keys[] = {"a", "b"};
  ASSERT_OK_ASSIGN(ObjectsFound found, seen.Exists(keys));
  EXPECT_EQ(1u, found.leading);
  EXPECT_EQ(1u, seen.List({}, 10)->objects.size());
  EXPECT_EQ(class_, *seen.RegisterClass({.name = "pages", .page_bytes = kPage}));
  const ObjectPut put{.key = "b", .value = value};
  EXPECT_FAILS(seen.PutBatch({&put, 1}, {.object_class = class_}), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.PutBatchAsync({&put, 1}, {.object_class = class_}), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.Delete(keys), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.Touch(keys), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.SetPolicy("", {}), StatusCode::kReadOnly);
  // A replaced one is seen as the one or the other.
  const auto next = Content(2, 300'000);
  ASSERT_OK(
      Put("a", next, {.if_present = IfPresent::kReplace, .durability = Durability::kPower}).status);
  EXPECT_EQ(value, Get(seen, "a"));
  ASSERT_OK(store_.Flush());
  ASSERT_OK(follower.Refresh());
  EXPECT_EQ(next, Get(seen, "a"));
  ASSERT_OK(follower.Close());
  EXPECT_FAILS(seen.Exists(keys), StatusCode::kInvalidState);
  EXPECT_FAILS(Objects().Exists(keys), StatusCode::kInvalidState, "an empty handle");
}

TEST_P(ObjectCallsTest, ANamespaceThatNobodyUsedIsEmpty) {
  ASSERT_OK(Put("a", Content(1, 100)).status);
  const std::string_view keys[] = {"a", "b"};
  std::vector<std::byte> into(100);
  const ObjectGet get{.key = "a", .into = into};
  for (const std::string ns : {"nobody's", "\x01o", "\x01"}) {
    EXPECT_EQ(0u, Space().Exists(keys, ns)->count);
    EXPECT_FAILS(Space().GetBatch({&get, 1}, {.ns = ns})->at(0).status, StatusCode::kNotFound,
                 "no object has this key");
    EXPECT_FAILS(Delete("a", ns), StatusCode::kNotFound);
    EXPECT_FAILS(Space().Stat("a", ns), StatusCode::kNotFound);
    EXPECT_OK(Space().Touch(keys, ns));
    EXPECT_TRUE(Space().List(ns, 10)->objects.empty());
    ASSERT_OK(Put("a", Content(2, 50), {.ns = ns}).status);  // Any name will do.
    EXPECT_EQ(Content(2, 50), Get("a", ns));
  }
  EXPECT_EQ(Content(1, 100), Get("a"));
  EXPECT_EQ(4u, Space().Usage()->size());
}

// Nothing at all is asked for.
TEST_P(ObjectCallsTest, BatchesOfNothing) {
  EXPECT_TRUE(Space().PutBatch({}, {.object_class = class_})->empty());
  EXPECT_TRUE(Space().PutBatchAsync({}, {.object_class = class_})->empty());
  EXPECT_TRUE(Space().GetBatch({})->empty());
  EXPECT_TRUE(Space().GetBatchAsync({})->empty());
  EXPECT_EQ(0u, Space().Exists({})->count);
  EXPECT_TRUE(Space().Delete({})->empty());
  EXPECT_OK(Space().Touch({}));
}

TEST_P(ObjectCallsTest, OutOfTimeTellsWhatIsThere) {
  const auto value = Content(1, 3000);
  const PutOptions hurried{.durability = Durability::kPower, .timeout_ns = 0};
  // It exists, but nobody waited until it was safe; or it does not exist.
  const PutResult put = Put("a", value, hurried);
  const bool there = Get("a").has_value();
  const StatusCode code = put.status.code();
  EXPECT_TRUE(there ? code == StatusCode::kUnknownOutcome || code == StatusCode::kOk
                    : code == StatusCode::kDeadlineExceeded)
      << put.status.ToString();
  if (there) {
    EXPECT_EQ(value, Get("a"));
  }
  // A large one, of several records, is whole or away.
  const auto large = Content(2, 300'000);
  const PutResult slow = Put("large", large, hurried);
  const auto got = Get("large");
  EXPECT_TRUE(!got.has_value() || *got == large);
  if (!got.has_value()) {
    EXPECT_FAILS(slow.status, StatusCode::kDeadlineExceeded);
    EXPECT_EQ(there ? 1u : 0u, Space().Usage()->empty() ? 0u : Space().Usage()->at(0).branches);
  }
  ASSERT_OK(Put("b", value).status);
  ASSERT_OK(store_.Compact());
  Reopen();
  std::vector<std::byte> into(3000);
  const ObjectGet get{.key = "b", .into = into};
  ASSERT_OK_ASSIGN(const std::vector<GetResult> late,
                   Space().GetBatch({&get, 1}, {.timeout_ns = 0}));
  EXPECT_FAILS(late[0].status, StatusCode::kDeadlineExceeded);
  ASSERT_OK_ASSIGN(const std::vector<GetResult> in_time, Space().GetBatch({&get, 1}));
  EXPECT_OK(in_time[0].status);
}

TEST_P(ObjectCallsTest, ACancelledGetEndsOnce) {
  constexpr size_t kCount = 200;
  std::vector<std::string> keys;
  std::vector<std::vector<std::byte>> into;
  for (size_t i = 0; i < kCount; ++i) {
    keys.push_back("key " + std::to_string(i));
    ASSERT_OK(Put(keys[i], Content(i, 5000)).status);
    into.emplace_back(5000);
  }
  Reopen();
  std::vector<ObjectGet> gets;
  for (size_t i = 0; i < kCount; ++i) gets.push_back({.key = keys[i], .into = into[i]});
  ASSERT_OK_ASSIGN(std::vector<Ticket> tickets, Space().GetBatchAsync(gets));
  size_t cancelled = 0;
  for (size_t i = kCount; i-- > 0;) {
    const Status status = i % 2 == 0 ? tickets[i].Cancel() : tickets[i].Wait();
    if (status.code() == StatusCode::kCancelled) {
      ++cancelled;
      continue;
    }
    EXPECT_OK(status);
    EXPECT_EQ(5000u, tickets[i].length());
    EXPECT_EQ(Content(i, 5000), into[i]);
  }
  EXPECT_LE(cancelled, kCount / 2);
}

// Replaced all the time: it is always there, and what is read is what one put gave.
TEST_P(ObjectCallsTest, WhatIsReplacedIsTheOneOrTheOther) {
  if (GetParam() == "simulated") GTEST_SKIP() << "its threads are not the machine's";
  constexpr uint64_t kVersions = 4;
  std::vector<std::vector<std::byte>> versions;
  for (uint64_t i = 0; i < kVersions; ++i) versions.push_back(Content(i, 1000 + 700 * i));
  ASSERT_OK(Put("a", versions[0]).status);
  ASSERT_TRUE(AwaitDirectory());
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> reads{0};
  std::thread asks([&] {
    while (!ends) EXPECT_TRUE(Has("a"));
  });
  std::thread reader([&] {
    std::vector<std::byte> into(4000);
    const ObjectGet get{.key = "a", .into = into};
    while (!ends) {
      const auto got = Space().GetBatch({&get, 1});
      ASSERT_OK(got);
      if ((*got)[0].status.code() == StatusCode::kBusy) continue;
      ASSERT_OK((*got)[0].status);
      ++reads;
      const auto& version = versions[((*got)[0].bytes - 1000) / 700];
      ASSERT_EQ(version.size(), (*got)[0].bytes);
      ASSERT_TRUE(std::equal(version.begin(), version.end(), into.begin()));
    }
  });
  for (uint64_t i = 0; i < 400 || reads < 20; ++i) {
    ASSERT_OK(Put("a", versions[i % kVersions], {.if_present = IfPresent::kReplace}).status);
  }
  ends = true;
  asks.join();
  reader.join();
}

// Looking many up reads the index in rounds, and brings the same as one by one.
TEST_P(ObjectCallsTest, ManyKeysThatAreNotInMemory) {
  constexpr size_t kCount = 500;
  std::vector<std::string> keys;
  std::vector<std::vector<std::byte>> into;
  for (size_t i = 0; i < kCount; ++i) {
    keys.push_back("key " + std::to_string(i));
    if (i % 3 != 0) {
      ASSERT_OK(Put(keys[i], Content(i, 100 + i)).status);
    }
    into.emplace_back(100 + i);
  }
  ASSERT_OK(store_.Compact());
  for (const uint64_t tree_memory_bytes : {0, 64 << 20}) {
    Options options = world_->options();
    options.tree_memory_bytes = tree_memory_bytes;
    Reopen(options);
    std::vector<ObjectGet> gets;
    for (size_t i = 0; i < kCount; ++i) gets.push_back({.key = keys[i], .into = into[i]});
    ASSERT_OK_ASSIGN(const std::vector<GetResult> got, Space().GetBatch(gets));
    for (size_t i = 0; i < kCount; ++i) {
      if (i % 3 == 0) {
        EXPECT_FAILS(got[i].status, StatusCode::kNotFound);
        continue;
      }
      ASSERT_OK(got[i].status);
      EXPECT_EQ(Content(i, 100 + i), into[i]);
    }
    EXPECT_EQ(kCount - (kCount + 2) / 3, store_.Metrics().objects_got);
    EXPECT_EQ((kCount + 2) / 3, store_.Metrics().objects_missed);
  }
}

}  // namespace
}  // namespace cairn::testing
