// SPDX-License-Identifier: Apache-2.0
//
// Property: the directory never reports an existing object as absent, nor an absent one as present,
// whatever room it has, while it is filled, and between the ops of a record.
// Method: the directory alone, with little room, which hears of commits, beside a map that has room
// for all.
#include <map>
#include <random>

#include "engine/objects/object_directory.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class DirectoryAloneTest : public ::testing::Test {
 protected:
  using Answer = engine::ObjectDirectory::Answer;

  static engine::Head HeadOf(uint64_t id, const std::string& key) {
    engine::Head head;
    head.id = id;
    head.ns = "\x01ot";
    head.name = key;
    head.lengths = {1, 1};
    return head;
  }
  void Add(engine::Head head) {
    head.use = tree_.sums().NamespaceOf(head.ns);
    tree_.residency().AddHead(std::move(head));
  }
  void Commit(engine::OpKind kind, const engine::Head& head) {
    engine::CommittedOp op;
    op.op.kind = kind;
    op.op.branch = head.id;
    op.op.ns = head.ns;
    tree_.residency().RememberHead(head.id);
    if (!tree_.KnowsHead(head.id)) Add(head);
    directory_.OnCommitted(op);
  }
  Answer Ask(const std::string& key) {
    const std::string_view view = key;
    Answer answer{};
    directory_.Look("t", {&view, 1}, {&answer, 1});
    return answer;
  }

  static constexpr uint64_t kBytesMax = 64 << 10;
  engine::Tree tree_;
  MemoryBudget budget_{1 << 20};
  engine::ObjectDirectory directory_{&tree_, &budget_, kBytesMax};
};

TEST_F(DirectoryAloneTest, KnowsWhatItHasRoomFor) {
  std::mt19937_64 random(3);
  std::map<uint64_t, std::string> there;
  uint64_t next = 1;
  directory_.BeginFill(1);
  directory_.EndFill(true);
  const auto check = [&](bool whole) {
    uint64_t unknown = 0;
    for (uint64_t id = 1; id < next; ++id) {
      const Answer answer = Ask("key " + std::to_string(id));
      const bool is_there = there.contains(id);
      ASSERT_NE(answer, is_there ? Answer::kAbsent : Answer::kPresent) << id;
      unknown += answer == Answer::kUnknown && is_there;
    }
    EXPECT_EQ(whole, unknown == 0);
    EXPECT_EQ(whole, directory_.figures().whole);
    EXPECT_EQ(there.size() - unknown, directory_.figures().entries);
    EXPECT_LE(directory_.figures().bytes, kBytesMax);
  };
  for (int round = 0; round < 3000; ++round) {
    if (random() % 3 != 0 || there.empty()) {
      there[next] = "key " + std::to_string(next);
      Commit(engine::OpKind::kCreate, HeadOf(next, there[next]));
      ++next;
    } else {
      const auto gone = std::next(there.begin(), static_cast<int64_t>(random() % there.size()));
      Commit(engine::OpKind::kDrop, HeadOf(gone->first, gone->second));
      there.erase(gone);
    }
  }
  check(/*whole=*/true);
  // Marks are nowhere else, so others make room before those that were touched.
  std::vector<std::pair<uint64_t, std::string>> touched;
  for (const auto& [id, key] : there) {
    if (touched.size() == 40) break;
    touched.emplace_back(id, key);
    const std::string_view view = key;
    directory_.Touch("t", {&view, 1});
  }
  for (; there.size() < 6000; ++next) {
    there[next] = "key " + std::to_string(next);
    Commit(engine::OpKind::kCreate, HeadOf(next, there[next]));
  }
  check(/*whole=*/false);
  EXPECT_GT(directory_.figures().entries, 2000u);
  for (const auto& [id, key] : touched) {
    EXPECT_TRUE(directory_.TakeTouched(HeadOf(id, key))) << key;
    EXPECT_FALSE(directory_.TakeTouched(HeadOf(id, key)));
  }
  EXPECT_EQ((1u << 20) - directory_.figures().bytes, budget_.left());
  // New objects are known at once, and when all objects without a place are gone it knows all
  // again.
  EXPECT_EQ(Answer::kPresent, Ask("key " + std::to_string(next - 1)));
  for (auto one = there.begin(); one != there.end();) {
    if (Ask(one->second) == Answer::kPresent) {
      ++one;
      continue;
    }
    EXPECT_FALSE(directory_.figures().whole);
    Commit(engine::OpKind::kDrop, HeadOf(one->first, one->second));
    one = there.erase(one);
  }
  check(/*whole=*/true);
  directory_.Close();
  EXPECT_EQ(1u << 20, budget_.left());
  EXPECT_EQ(Answer::kUnknown, Ask(there.begin()->second));
}

// A record is applied as a whole before it is reported, op by op.
TEST_F(DirectoryAloneTest, InTheMiddleOfARecordItTellsTheTruth) {
  directory_.BeginFill(1);
  directory_.EndFill(true);
  const engine::Head first = HeadOf(1, "a"), second = HeadOf(2, "a");
  Commit(engine::OpKind::kCreate, first);
  // The second takes the place of the first.
  tree_.residency().RememberHead(2);
  Add(second);
  tree_.residency().AddName({second.ns, second.name, 2});
  Commit(engine::OpKind::kDrop, first);
  EXPECT_EQ(Answer::kPresent, Ask("a"));
  Commit(engine::OpKind::kCreate, second);
  EXPECT_EQ(1u, directory_.figures().entries);
  tree_.residency().EraseName({second.ns, second.name, 2});
  Commit(engine::OpKind::kDrop, second);
  EXPECT_EQ(Answer::kAbsent, Ask("a"));
  // Made and dropped in one.
  engine::Head brief = HeadOf(3, "b");
  brief.gone = true;
  Commit(engine::OpKind::kCreate, brief);
  EXPECT_EQ(Answer::kUnknown, Ask("b"));
  Commit(engine::OpKind::kDrop, brief);
  EXPECT_EQ(Answer::kAbsent, Ask("b"));
  EXPECT_EQ(0u, directory_.figures().entries);
  EXPECT_TRUE(directory_.figures().whole);
}

// The filling thread may have read an object of the index that is dropped by now, or that is known
// already.
TEST_F(DirectoryAloneTest, WhatIsDroppedWhileItIsFilledStaysAway) {
  directory_.BeginFill(1);
  const engine::Head dropped = HeadOf(1, "dropped"), kept = HeadOf(2, "kept"),
                     come = HeadOf(3, "come");
  Commit(engine::OpKind::kDrop, dropped);
  Commit(engine::OpKind::kCreate, come);
  EXPECT_EQ(Answer::kPresent, Ask("come"));
  EXPECT_EQ(Answer::kUnknown, Ask("kept"));
  for (const engine::Head& head : {dropped, kept, come}) directory_.Insert(head);
  directory_.EndFill(true);
  EXPECT_EQ(Answer::kAbsent, Ask("dropped"));
  EXPECT_EQ(Answer::kPresent, Ask("kept"));
  EXPECT_EQ(Answer::kPresent, Ask("come"));
  EXPECT_EQ(2u, directory_.figures().entries);
}

// Objects dropped while it is filled are noted; if there are too many, the filling ends.
TEST_F(DirectoryAloneTest, DoesNotNoteAllThatGoesWhileItIsFilled) {
  constexpr uint64_t kMany = engine::kDroppedWhileFilledMax + 10;
  directory_.BeginFill(1);
  for (uint64_t id = 1; id <= kMany; ++id) {
    engine::Head head = HeadOf(id, "key " + std::to_string(id));
    head.gone = true;  // As it is when its drop is reported.
    Commit(engine::OpKind::kDrop, head);
    tree_.residency().RemoveHead(id);
  }
  directory_.Insert(HeadOf(1, "key 1"));
  directory_.Insert(HeadOf(kMany, "key " + std::to_string(kMany)));
  directory_.EndFill(true);
  EXPECT_EQ(Answer::kUnknown, Ask("key 1"));
  EXPECT_EQ(Answer::kUnknown, Ask("key " + std::to_string(kMany)));
  EXPECT_EQ(0u, directory_.figures().entries);
  EXPECT_FALSE(directory_.figures().whole);
}

}  // namespace
}  // namespace cairn::testing
