// SPDX-License-Identifier: Apache-2.0
//
// The bug: a node of the index was taken in wherever it said that it was. A child of a node of
// another model, which has fewer lanes, made readers look beyond that one's lanes; a branch that
// ended beyond its node, likewise. Both are refused by name where they are read, and so is whatever
// else no node and no branch has.
#include <cstring>

#include "engine/tree/records/tree_keys.h"
#include "tests/crash/hostile_files.h"
#include "tests/engine/engine_test.h"
#include "tests/golden/golden_story.h"

namespace cairn::testing {
namespace {

using crash::IndexRecords;

// Finds where the value of a number stands in a field table.
size_t FieldAt(const std::string& value, char id) {
  const std::string header = std::string(1, id) + std::string("\0\1\1\10\0\0\0", 7);
  const size_t found = value.find(header);
  return found == value.npos ? found : found + header.size();
}
constexpr char kHeadNode = 3, kNodeModel = 1, kNodeParent = 2;

uint64_t Get(const std::string& value, char field) {
  uint64_t number = 0;
  std::memcpy(&number, value.data() + FieldAt(value, field), sizeof(number));
  return number;
}
void Set(std::string* value, char field, uint64_t number) {
  std::memcpy(value->data() + FieldAt(*value, field), &number, sizeof(number));
}

class AChildOfAnotherModel : public ::testing::Test {
 protected:
  void ExpectRefused(const IndexRecords& records, const std::string& what) {
    const io::SimWorld machine = io::CrashWorld(*base_, io::CrashChoice::KeepAll());
    crash::PutIndexRecords(*machine.disk, records);
    Options options = golden::GoldenOptions();
    options.world = std::make_shared<io::World>(machine.world());
    options.read_only = true;
    ASSERT_OK_ASSIGN(const Store store, Store::Open(crash::kHostileStore, options));
    EXPECT_FAILS(store.FindBranch("what-if"), StatusCode::kCorruption, what);
  }
  uint64_t NodeOf(const std::string& name) {
    return Get(records_.at(std::string("B\0", 2) + name + '\0'), kHeadNode);
  }

  const std::unique_ptr<io::SimDisk> base_ = crash::HostileBase();
  const IndexRecords records_ = crash::ReadIndexRecords(*base_);
};

TEST_F(AChildOfAnotherModel, IsRefused) {
  IndexRecords records = records_;
  const std::string key = engine::Key('N', NodeOf("what-if"));
  std::string& node = records.at(key);
  const uint64_t other = NodeOf("tokens");
  ASSERT_NE(Get(node, kNodeModel), Get(records.at(engine::Key('N', other)), kNodeModel));
  ASSERT_NE(Get(node, kNodeParent), 0u);
  Set(&node, kNodeParent, other);
  ExpectRefused(records, "it does not begin on its parent");
}

TEST_F(AChildOfAnotherModel, NorIsABranchBeyondItsNode) {
  IndexRecords records = records_;
  std::string& head = records.at(std::string("B\0what-if\0", 10));
  Set(&head, kHeadNode, NodeOf("tokens"));
  ExpectRefused(records, "it does not end on its node");
}

TEST_F(AChildOfAnotherModel, NorIsWhatNoNodeHas) {
  const auto node = [] {
    engine::Node made;
    made.id = 9;
    made.model = 1;
    const engine::Extent extent{.begin = 10, .count = 10, .place = {}};
    made.lanes.assign(2, {.start = 10, .end = 20, .extents = {extent}});
    made.samplers = {{.position = 12, .place = {}}, {.position = 20, .place = {}}};
    made.spans = {{.begin = 10, .end = 12}, {.begin = 12, .end = 20}};
    return made;
  };
  const std::string key = engine::Key('N', 9);
  EXPECT_OK(engine::CheckNode(key, node()));
  const auto expect_damaged = [&](const std::function<void(engine::Node&)>& change,
                                  const std::string& what) {
    engine::Node changed = node();
    change(changed);
    EXPECT_FAILS(engine::CheckNode(key, changed), StatusCode::kCorruption, what);
  };
  using engine::Node;
  expect_damaged([](Node& n) { n.parent = 9; }, "an impossible node or parent");
  expect_damaged([](Node& n) { n.parent = UINT64_MAX; }, "an impossible node or parent");
  expect_damaged([](Node& n) { n.ns = std::string(1000, 'n'); }, "an impossible namespace");
  expect_damaged([](Node& n) { n.lanes[1].start = 30; }, "lane 1: it ends before it begins");
  expect_damaged([](Node& n) { n.lanes[1].end = 21; }, "lane 1: it goes beyond the tokens");
  expect_damaged([](Node& n) { n.lanes[1].extents[0].begin = 11; }, "lane 1: it has a gap");
  expect_damaged([](Node& n) { n.lanes[0].extents[0].count = 0; }, "goes on behind its end");
  expect_damaged([](Node& n) { n.lanes[0].extents[0].count = 11; }, "goes on behind its end");
  expect_damaged([](Node& n) { n.lanes[0].extents[0].count = 9; }, "it ends at position 19");
  expect_damaged(
      [](Node& n) { n.lanes[1].extents[0].place = {.log = {}, .table = 5, .positions = 9}; },
      "more positions than their fragment");
  expect_damaged([](Node& n) { n.samplers[0].position = 20; }, "states are not in order");
  expect_damaged([](Node& n) { n.samplers[1].position = 21; }, "a state lies beyond the tokens");
  expect_damaged([](Node& n) { n.spans[1].begin = 11; }, "spans are not in order");
  expect_damaged([](Node& n) { n.spans[1].end = 21; }, "a span lies beyond the tokens");
}

}  // namespace
}  // namespace cairn::testing
