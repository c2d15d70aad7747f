// SPDX-License-Identifier: Apache-2.0
//
// Property: what Exists has put on lease stays until the lease is over: nothing evicts or expires
// it; a delete and a replacement win; the lease is for all that Exists reports, or there is none.
#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kMinute = 60'000'000'000;

class ObjectLeaseTest : public ObjectsTest {
 protected:
  ObjectsFound Lease(const std::vector<std::string>& keys, uint64_t lease_ns = kMinute,
                     std::string_view ns = {}) {
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto found = Space().Exists(views, ns, lease_ns);
    EXPECT_OK(found);
    return found.ok() ? *found : ObjectsFound();
  }
  void PutMany(std::string_view name, int count, std::span<const std::byte> value) {
    for (int i = 0; i < count; ++i) {
      ASSERT_OK(Put(std::string(name) + " " + std::to_string(i), value).status);
      world_->world().scheduler->Sleep(2'000'000);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, ObjectLeaseTest, ::testing::Values("threads", "simulated"),
                         NameOf);

// The two that came first: one is on lease.
TEST_P(ObjectLeaseTest, HoldsAgainstEviction) {
  const auto value = Content(1, 8192);
  ASSERT_OK(Space().SetPolicy("", {.max_bytes = 8 * 8400, .evict = Evict::kBranches}));
  ASSERT_OK(Put("held", value).status);
  ASSERT_OK(Put("other", value).status);
  const ObjectsFound found = Lease({"held", "there is none"});
  EXPECT_EQ(1u, found.count);
  EXPECT_EQ(1u, found.leading);
  ASSERT_NE(LeaseId{}, found.lease);
  PutMany("new", 20, value);
  EXPECT_FALSE(Has("other"));
  EXPECT_EQ(value, Get("held"));
  ASSERT_OK(store_.Release(found.lease));
  EXPECT_EQ(0u, store_.Metrics().leases);
  EXPECT_FAILS(store_.Renew(found.lease, kMinute), StatusCode::kNotFound, "is over");
  PutMany("newer", 20, value);
  EXPECT_FALSE(Has("held"));
}

TEST_P(ObjectLeaseTest, IsOverWhenAllOfItIsDeleted) {
  const auto value = Content(1, 8192);
  PutMany("old", 3, value);
  const ObjectsFound found = Lease({"old 0", "old 1", "old 2"});
  ASSERT_NE(LeaseId{}, found.lease);
  const uint64_t bytes = store_.Metrics().leased_bytes;
  ASSERT_OK(Delete("old 1"));
  EXPECT_EQ(bytes / 3 * 2, store_.Metrics().leased_bytes);
  EXPECT_OK(store_.Renew(found.lease, kMinute));
  ASSERT_OK(Put("old 0", value, {.if_present = IfPresent::kReplace}).status);
  EXPECT_OK(store_.Renew(found.lease, kMinute));
  ASSERT_OK(Delete("old 2"));
  EXPECT_EQ(0u, store_.Metrics().leased_bytes);
  EXPECT_FAILS(store_.Renew(found.lease, kMinute), StatusCode::kNotFound, "dropped");
}

// Nothing else may go: the put says so, and does not wait.
TEST_P(ObjectLeaseTest, AFullNamespaceOnLeaseHasNoSpace) {
  const auto value = Content(1, 8192);
  PutMany("old", 6, value);
  std::vector<std::string> keys;
  for (int i = 0; i < 6; ++i) keys.push_back("old " + std::to_string(i));
  const ObjectsFound found = Lease(keys);
  EXPECT_EQ(6u, found.leading);
  ASSERT_NE(LeaseId{}, found.lease);
  ASSERT_OK(Space().SetPolicy("", {.max_bytes = 6 * 8400, .evict = Evict::kBranches}));
  EXPECT_FAILS(Put("new", value).status, StatusCode::kNoSpace);
  for (const std::string& key : keys) EXPECT_EQ(value, Get(key));
  ASSERT_OK(store_.Release(found.lease));
  EXPECT_OK(Put("new", value).status);
}

TEST_P(ObjectLeaseTest, HoldsAgainstExpiryUntilItEndsByItself) {
  if (GetParam() != "simulated") GTEST_SKIP() << "seconds of a machine's time";
  constexpr uint64_t kSecond = 1'000'000'000;
  const auto value = Content(1, 100);
  for (const char* key : {"held", "other"}) {
    ASSERT_OK(Put(key, value, {.ttl_ns = 2 * kSecond}).status);
  }
  const LeaseId lease = Lease({"held"}, 10 * kSecond).lease;
  ASSERT_NE(LeaseId{}, lease);
  io::Scheduler& scheduler = *world_->world().scheduler;
  scheduler.Sleep(8 * kSecond);
  EXPECT_FALSE(Has("other"));
  ASSERT_OK(store_.Renew(lease, 10 * kSecond));
  scheduler.Sleep(8 * kSecond);
  EXPECT_EQ(value, Get("held"));
  scheduler.Sleep(8 * kSecond);
  EXPECT_FALSE(Has("held"));
}

TEST_P(ObjectLeaseTest, ADeleteAndAReplacementWin) {
  const auto value = Content(1, 3000), other = Content(2, 700);
  ASSERT_OK(Put("deleted", value).status);
  ASSERT_OK(Put("replaced", value).status);
  ASSERT_NE(LeaseId{}, Lease({"deleted", "replaced"}).lease);
  ASSERT_OK(Delete("deleted"));
  ASSERT_OK(Put("replaced", other, {.if_present = IfPresent::kReplace}).status);
  EXPECT_FALSE(Get("deleted").has_value());
  EXPECT_EQ(other, Get("replaced"));
  ASSERT_OK(store_.Compact());  // Drops dead content; the lease holds it, and nothing minds.
  EXPECT_EQ(1u, store_.Metrics().branches);
}

// More than are held at once, some of which are not there, before the directory knows and after.
TEST_P(ObjectLeaseTest, OneLeaseForManyKeys) {
  constexpr uint64_t kKeys = 700;
  const auto value = Content(1, 40);
  std::vector<std::string> keys;
  std::vector<ObjectPut> puts;
  for (uint64_t i = 0; i < kKeys; ++i) keys.push_back("key " + std::to_string(i));
  for (uint64_t i = 0; i < kKeys; i += 2) puts.push_back({.key = keys[i], .value = value});
  ASSERT_OK(Space().PutBatch(puts, {.object_class = class_}));
  Reopen();
  for (int round = 0; round < 2; ++round) {
    const ObjectsFound found = Lease(keys);
    EXPECT_EQ(kKeys / 2, found.count);
    EXPECT_EQ(1u, found.leading);
    for (uint64_t i = 0; i < kKeys; ++i) ASSERT_EQ(i % 2 == 0, found[i]);
    ASSERT_NE(LeaseId{}, found.lease);
    EXPECT_EQ(1u, store_.Metrics().leases);
    EXPECT_EQ(kKeys / 2 * (kPage + sizeof(TokenId)), store_.Metrics().leased_bytes);
    ASSERT_OK(store_.Release(found.lease));
    EXPECT_EQ(0u, store_.Metrics().leased_bytes);
    ASSERT_TRUE(AwaitDirectory());
  }
  EXPECT_EQ(LeaseId{}, Lease({"there is none", keys[1]}).lease);
  EXPECT_EQ(0u, store_.Metrics().leases);
}

TEST_P(ObjectLeaseTest, IsForAllOrThereIsNone) {
  Options options = world_->options();
  options.max_leased_bytes = 400 * (kPage + sizeof(TokenId));
  Reopen(options);
  std::vector<std::string> keys;
  std::vector<ObjectPut> puts;
  const auto value = Content(1, 40);
  for (uint64_t i = 0; i < 600; ++i) keys.push_back("key " + std::to_string(i));
  for (const std::string& key : keys) puts.push_back({.key = key, .value = value});
  ASSERT_OK(Space().PutBatch(puts, {.object_class = class_}));
  const ObjectsFound none = Lease(keys);
  EXPECT_EQ(600u, none.count) << "it is told all the same";
  EXPECT_EQ(LeaseId{}, none.lease);
  EXPECT_EQ(0u, store_.Metrics().leased_bytes);
  keys.resize(300);
  EXPECT_NE(LeaseId{}, Lease(keys).lease);
  EXPECT_EQ(LeaseId{}, Lease(keys).lease) << "others hold most of it";
}

TEST_P(ObjectLeaseTest, AReaderGivesNoneAndARestartKnowsNone) {
  ASSERT_OK(Put("a", Content(1, 100)).status);
  const LeaseId lease = Lease({"a"}).lease;
  ASSERT_NE(LeaseId{}, lease);
  ASSERT_OK(store_.Flush());
  Options options = world_->options();
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(Store reader, world_->Open(options));
  const std::string_view key = "a";
  ASSERT_OK_ASSIGN(const ObjectsFound found, Objects(reader).Exists({&key, 1}, {}, kMinute));
  EXPECT_EQ(1u, found.count);
  EXPECT_EQ(LeaseId{}, found.lease);
  ASSERT_OK(reader.Close());
  Reopen();
  EXPECT_FAILS(store_.Renew(lease, kMinute), StatusCode::kNotFound, "is over");
  EXPECT_EQ(0u, store_.Metrics().leases);
}

}  // namespace
}  // namespace cairn::testing
