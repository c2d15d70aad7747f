// SPDX-License-Identifier: Apache-2.0
//
// The bug: a batch is one record of the log, and each read of one of its parts hashed and decoded
// what the record says of all parts, and read all of it from the disk: a get of 100 bytes took 354
// us instead of 3, sealing 609 instead of 13. Method: the processor time of reads of parts beside
// reads of content that was written alone; and a simulated disk counts what a read takes of the
// log.
#include <time.h>

#include <algorithm>
#include <functional>

#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

constexpr size_t kObjects = 1000;
constexpr int kTries = 5;  // The fastest counts.

double Seconds(clockid_t clock) {
  timespec now{};
  EXPECT_EQ(0, clock_gettime(clock, &now));
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<std::string> Keys(size_t count) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < count; ++i) keys.push_back("key" + std::to_string(i));
  return keys;
}

class ABatchWasReadWhole : public ::testing::Test {
 protected:
  void Open(const Options& options) {
    ASSERT_OK_ASSIGN(store_, Store::Open(directory_.path() + "/store", options));
    ASSERT_OK_ASSIGN(class_, Objects(store_).RegisterClass({.name = "pages"}));
    // Nothing is sealed but by Compact.
    ASSERT_OK(store_.PauseBackground());
  }
  void Put(const std::vector<std::string>& keys, size_t at_once) {
    const std::vector<std::byte> value = Content(1, 100);
    for (size_t first = 0; first < keys.size(); first += at_once) {
      std::vector<ObjectPut> puts;
      for (size_t i = first; i < first + at_once; ++i) {
        puts.push_back({.key = keys[i], .value = value});
      }
      ASSERT_OK(Objects(store_).PutBatch(
          puts, {.object_class = class_, .durability = Durability::kMemory}));
    }
  }
  double SecondsOfGets(const std::vector<std::string>& keys) {
    const std::vector<std::byte> value = Content(1, 100);
    double fastest = 1e9;
    for (int i = 0; i < kTries; ++i) {
      const double start = Seconds(CLOCK_THREAD_CPUTIME_ID);
      for (const std::string& key : keys) {
        std::vector<std::byte> into(value.size());
        const ObjectGet get{.key = key, .into = into};
        const auto got = Objects(store_).GetBatch({&get, 1});
        EXPECT_OK(got);
        EXPECT_EQ(value, into);
      }
      fastest = std::min(fastest, Seconds(CLOCK_THREAD_CPUTIME_ID) - start);
    }
    return fastest;
  }

  TempDirectory directory_;
  Store store_;
  ObjectClassId class_{};
};

Options RealOptions() {
  Options options;
  options.create_if_missing = true;
  options.max_memory_bytes = 128u << 20;
  options.hot_tail_bytes = 32u << 20;
  options.index = Index::kNone;
  return options;
}

TEST_F(ABatchWasReadWhole, ByEachGet) {
  Open(RealOptions());
  std::vector<std::string> together = Keys(kObjects), alone;
  for (const std::string& key : together) alone.push_back("alone" + key);
  Put(together, kObjects);
  Put(alone, 1);
  const double of_one = SecondsOfGets(alone);
  const double of_part = SecondsOfGets(together);
  EXPECT_LT(of_part, 2 * of_one) << of_part << " s; alone " << of_one << " s";
}

TEST_F(ABatchWasReadWhole, ByEachRestore) {
  Open(RealOptions());
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(TokenModel()));
  const std::vector<TokenId> tokens = Tokens(2);
  const auto restore = [&](const std::vector<Branch>& branches) {
    double fastest = 1e9;
    for (int i = 0; i < kTries; ++i) {
      const double start = Seconds(CLOCK_THREAD_CPUTIME_ID);
      for (const Branch& branch : branches) {
        std::vector<TokenId> into(2);
        RestoreRequest request;
        request.tokens = into;
        EXPECT_OK(branch.Restore(request));
        EXPECT_EQ(tokens, into);
      }
      fastest = std::min(fastest, Seconds(CLOCK_THREAD_CPUTIME_ID) - start);
    }
    return fastest;
  };
  WriteBatch batch;
  for (size_t i = 0; i < kObjects; ++i) batch.Append(batch.Create(id, {}), MakeDelta(tokens));
  ASSERT_OK_ASSIGN(auto written, store_.Write(batch));
  ASSERT_OK(written.ticket.Wait());
  std::vector<Branch> alone;
  for (size_t i = 0; i < kObjects; ++i) {
    ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(id));
    ASSERT_OK(branch.AppendSync(MakeDelta(tokens), {.durability = Durability::kMemory}));
    alone.push_back(branch);
  }
  const double of_one = restore(alone);
  const double of_part = restore(written.created);
  EXPECT_LT(of_part, 2 * of_one) << of_part << " s; alone " << of_one << " s";
}

// All threads' time: the space thread seals, and others help it.
TEST_F(ABatchWasReadWhole, BySealing) {
  Open(RealOptions());
  const auto seal = [&](const std::string& prefix, size_t at_once) {
    double fastest = 1e9;
    for (int i = 0; i < kTries; ++i) {
      std::vector<std::string> keys = Keys(kObjects);
      for (std::string& key : keys) key = prefix + std::to_string(i) + key;
      Put(keys, at_once);
      const double start = Seconds(CLOCK_PROCESS_CPUTIME_ID);
      EXPECT_OK(store_.ResumeBackground());
      EXPECT_OK(store_.Compact());
      EXPECT_OK(store_.PauseBackground());
      fastest = std::min(fastest, Seconds(CLOCK_PROCESS_CPUTIME_ID) - start);
    }
    return fastest;
  };
  const double of_one = seal("alone", 1);
  const double of_part = seal("together", kObjects);
  EXPECT_LT(of_part, 2 * of_one) << of_part << " s; alone " << of_one << " s";
}

// What is read of a record whose outline is known, and that it is checked.
class ALargeBatch : public ::testing::Test {
 protected:
  static constexpr size_t kParts = 8;
  static constexpr size_t kBytes = 448u << 10;  // 3.5 MiB together.

  void SetUp() override {
    options_ = TinyOptions();
    options_.max_memory_bytes = 64u << 20;
    options_.segment_bytes = 16u << 20;
    options_.hot_tail_bytes = 16u << 20;
    options_.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("store", options_));
    ASSERT_OK_ASSIGN(const ObjectClassId id,
                     Objects(store_).RegisterClass({.name = "chunks", .page_bytes = 64u << 10}));
    std::vector<ObjectPut> puts;
    for (size_t i = 0; i < kParts; ++i) contents_.push_back(Content(i, kBytes));
    for (size_t i = 0; i < kParts; ++i) puts.push_back({.key = keys_[i], .value = contents_[i]});
    const uint64_t before = store_.Metrics().log_records;
    ASSERT_OK(Objects(store_).PutBatch(puts, {.object_class = id}));
    ASSERT_EQ(before + 1, store_.Metrics().log_records) << "they are not in one record";
    ASSERT_OK(store_.Close());
    ASSERT_OK_ASSIGN(store_, Store::Open("store", options_));  // Nothing of it is in memory.
    ASSERT_OK(store_.PauseBackground());
  }
  Status Get(size_t part, std::vector<std::byte>* into) {
    into->assign(kBytes, std::byte{0});
    const ObjectGet get{.key = keys_[part], .into = *into};
    CAIRN_ASSIGN_OR_RETURN(const auto got, Objects(store_).GetBatch({&get, 1}));
    return got[0].status;
  }
  std::string OnlySegmentWith(std::span<const std::byte> bytes, uint64_t* at) {
    for (const std::string& path : machine_.disk->Files()) {
      const auto all = machine_.disk->ReadRaw(path);
      if (!all.ok() || path.find("/log/") == std::string::npos) continue;
      const auto found = std::search(all->begin(), all->end(), bytes.begin(), bytes.end());
      if (found == all->end()) continue;
      *at = static_cast<uint64_t>(found - all->begin());
      return path;
    }
    return {};
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  const std::vector<std::string> keys_ = Keys(kParts);
  Options options_;
  Store store_;
  std::vector<std::vector<std::byte>> contents_;
};

TEST_F(ALargeBatch, IsReadByPartsOnceItIsKnown) {
  std::vector<std::byte> into;
  ASSERT_OK(Get(0, &into));
  uint64_t read = 0;
  machine_.disk->AddFault({.when =
                               [&](const io::SimOperation& one) {
                                 const bool log = one.path.find("/log/") != std::string::npos;
                                 if (one.op == io::SimOp::kRead && log) read += one.length;
                                 return false;
                               },
                           .persistent = true});
  for (size_t part = 1; part < kParts; ++part) {
    read = 0;
    ASSERT_OK(Get(part, &into));
    EXPECT_EQ(contents_[part], into);
    EXPECT_GE(read, kBytes);
    EXPECT_LE(read, kBytes + 4 * io::kBlockBytes) << "part " << part;
  }
  machine_.disk->ClearFaults();
}

TEST_F(ALargeBatch, IsCheckedByPartsOnceItIsKnown) {
  std::vector<std::byte> into;
  ASSERT_OK(Get(0, &into));
  uint64_t at = 0;
  const std::string path = OnlySegmentWith(std::span(contents_[3]).first(64), &at);
  ASSERT_FALSE(path.empty());
  ASSERT_OK(machine_.disk->FlipBit(path, at + 1000, 3));
  EXPECT_FAILS(Get(3, &into), StatusCode::kCorruption, "does not fit its hash");
  for (const size_t part : {2u, 4u}) {
    EXPECT_OK(Get(part, &into));
    EXPECT_EQ(contents_[part], into);
  }
}

}  // namespace
}  // namespace cairn::testing
