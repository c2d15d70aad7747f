// SPDX-License-Identifier: Apache-2.0
//
// Property: what is in memory of the tree is nobody's business: listings, names, forks and drops
// are the same when branches are read from the index each time; opening replays a bounded part of
// the log; and a damaged record of the index costs the branch that it belongs to.
// Method: stores that forget as soon as they may and flush the tree after every few records, in
// every world.
#include <map>
#include <random>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class TreeMemoryTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    options_ = world_->options();
    options_.tree_memory_bytes = 0;
    options_.replay_records_max = 50;
    Reopen(options_);
    model_ = Register(TokenModel());
  }

  void Append(Branch& branch, uint64_t count) {
    ASSERT_OK(branch.AppendSync({.tokens = Tokens(count)}));
  }

  Options options_;
  ModelId model_{};
};
INSTANTIATE_TEST_SUITE_P(Worlds, TreeMemoryTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

using NameList = std::map<std::string, uint64_t>;  // Name to id.

NameList List(const Store& store, const std::string& ns, const std::string& prefix, size_t limit) {
  NameList found;
  std::string cursor, last;
  do {
    auto page = store.ListBranches(ns, prefix, limit, cursor);
    EXPECT_OK(page);
    if (!page.ok()) return found;
    EXPECT_LE(page->branches.size(), limit);
    for (const BranchInfo& info : page->branches) {
      EXPECT_TRUE(found.empty() || last < info.name) << info.name << " after " << last;
      last = info.name;
      found[info.name] = static_cast<uint64_t>(info.id);
    }
    cursor = page->cursor;
  } while (!cursor.empty());
  return found;
}

TEST_P(TreeMemoryTest, ListingsAreWholeWhateverIsInMemory) {
  std::mt19937_64 random(5);
  std::map<std::string, NameList> expected;  // By namespace.
  uint64_t loads = 0;
  const std::vector<std::string> namespaces = {"", "a", "ab", "b"};
  for (int step = 0; step < 600; ++step) {
    const std::string& ns = namespaces[random() % namespaces.size()];
    const std::string name =
        std::string(1, static_cast<char>('p' + random() % 2)) + "-" + std::to_string(random() % 60);
    NameList& here = expected[ns];
    const auto found = here.find(name);
    if (found == here.end()) {
      auto made = store_.CreateBranch(model_, {.name = name, .ns = ns});
      ASSERT_OK(made);
      here[name] = static_cast<uint64_t>(made->id());
    } else if (random() % 2 == 0) {
      ASSERT_OK(store_.GetBranch(BranchId{found->second})->Drop());
      here.erase(found);
    } else {
      const std::string other = "r-" + std::to_string(random() % 20);
      const Status renamed = store_.GetBranch(BranchId{found->second})->Rename(other);
      if (here.contains(other)) {
        ASSERT_FAILS(renamed, StatusCode::kAlreadyExists);
        continue;
      }
      ASSERT_OK(renamed);
      here[other] = found->second;
      here.erase(name);
    }
    if (step % 100 == 99) {
      loads += store_.Metrics().tree_loads;
      Reopen(options_);
    }
    if (step % 20 != 0) continue;
    std::vector<std::string> with_branches;
    for (const auto& [space, names] : expected) {
      if (!names.empty()) with_branches.push_back(space);
      for (const size_t limit : {size_t{1}, size_t{7}, size_t{1000}}) {
        ASSERT_EQ(names, List(store_, space, "", limit)) << "namespace \"" << space << "\"";
      }
      NameList of_p = names;
      std::erase_if(of_p, [](const auto& entry) { return entry.first[0] != 'p'; });
      ASSERT_EQ(of_p, List(store_, space, "p", 3));
      for (const auto& [known, id] : names) {
        auto branch = store_.FindBranch(known, space);
        ASSERT_OK(branch);
        ASSERT_EQ(id, static_cast<uint64_t>(branch->id()));
      }
    }
    ASSERT_EQ(with_branches, NamesOf(store_));
  }
  EXPECT_GT(loads, 0u);
}

// A listing reads the index in pages; memory may have more than one of them holds.
TEST_P(TreeMemoryTest, ListingsHoldWhatIsInMemoryAlone) {
  options_.replay_records_max = 1 << 20;  // No flush to the index happens unasked.
  Reopen(options_);
  NameList expected;
  const auto create = [&](int from, int to, int step) {
    for (int i = from; i < to; i += step) {
      const std::string name = "n" + std::to_string(10'000 + i);
      expected[name] = static_cast<uint64_t>(Create(model_, name).id());
    }
  };
  create(0, 1200, 2);
  EXPECT_EQ(expected, List(store_, "", "", 10'000));
  ASSERT_OK(store_.Compact());  // These are in the index now...
  create(1, 1200, 2);           // ...and between them come others.
  create(1200, 2000, 1);
  for (const size_t limit : {size_t{3}, size_t{256}, size_t{257}, size_t{10'000}}) {
    EXPECT_EQ(expected, List(store_, "", "", limit)) << limit;
  }
}

// More of them than memory keeps: what needs the node is then known by the index alone.
TEST_P(TreeMemoryTest, ANodeGoesWithTheLastOfManyThatLeftIt) {
  Branch root = Create(model_, "root");
  Append(root, 400);
  std::vector<BranchId> children;
  for (uint64_t i = 0; i < 300; ++i) {
    auto child = root.ForkAt(1 + (i * 7) % 400, {});
    ASSERT_OK(child);
    if (i % 3 != 0) Append(*child, 2);  // A third stay heads of the node itself.
    children.push_back(child->id());
  }
  ASSERT_OK(root.Drop());
  Reopen(options_);
  EXPECT_EQ(300u, store_.Metrics().branches);
  EXPECT_EQ(201u, store_.Metrics().nodes);
  std::mt19937_64 random(3);
  std::shuffle(children.begin(), children.end(), random);
  for (size_t i = 0; i < children.size(); ++i) {
    Branch child = *store_.GetBranch(children[i]);
    const uint64_t length = *child.length();
    auto tokens = child.ReadTokens(0, length);
    ASSERT_OK(tokens);
    ASSERT_EQ(Tokens(400)[0], (*tokens)[0]);
    ASSERT_OK(child.Drop());
    if (i == 150) Reopen(options_);
  }
  ASSERT_OK(store_.Compact());
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(0u, metrics.branches);
  EXPECT_EQ(0u, metrics.nodes);
  EXPECT_EQ(0u, metrics.tokens);
}

TEST_P(TreeMemoryTest, RewindsLeaveWhatOthersNeed) {
  Branch root = Create(model_, "root");
  Append(root, 200);
  std::vector<BranchId> children;
  for (uint64_t i = 0; i < 150; ++i) {
    auto child = root.ForkAt(50 + i, {});
    ASSERT_OK(child);
    children.push_back(child->id());
  }
  Reopen(options_);
  root = Find("root");
  ASSERT_OK(root.Rewind(10));
  const std::vector<TokenId> tokens = Tokens(200);
  for (uint64_t i = 0; i < 150; ++i) {
    auto read = store_.GetBranch(children[i])->ReadTokens(0, 50 + i);
    ASSERT_OK(read);
    ASSERT_TRUE(std::equal(read->begin(), read->end(), tokens.begin()));
  }
  for (const BranchId child : children) ASSERT_OK(store_.GetBranch(child)->Drop());
  ASSERT_OK(root.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0u, store_.Metrics().nodes);
}

TEST_P(TreeMemoryTest, OpeningReplaysABoundedPartOfTheLog) {
  Branch chat = Create(model_, "chat");
  for (int i = 0; i < 1000; ++i) Append(chat, 1);
  ASSERT_OK(store_.Compact());
  for (int i = 0; i < 10; ++i) Append(chat, 1);
  Reopen(options_);
  EXPECT_LT(store_.Metrics().replayed_records, 700u) << "what one tiny segment holds";
  EXPECT_EQ(1010u, *Find("chat").length());
}

// What namespaces hold: branches, and tokens while nothing is sealed.
struct Held {
  std::map<std::string, uint64_t> branches{};
  uint64_t tokens() const {
    uint64_t sum = 0;
    for (const auto& [name, length] : branches) sum += length;
    return sum;
  }
};

void ExpectNamespaces(const Store& store, const std::map<std::string, Held>& expected) {
  const auto found = store.Namespaces();
  ASSERT_OK(found);
  size_t there = 0;
  for (const auto& [ns, held] : expected) there += held.branches.empty() ? 0 : 1;
  ASSERT_EQ(there, found->size());
  for (const NamespaceInfo& one : *found) {
    const Held& held = expected.at(one.name);
    ASSERT_EQ(held.branches.size(), one.branches) << one.name;
    ASSERT_EQ(held.tokens() * sizeof(TokenId), one.bytes) << one.name;
  }
}

TEST_P(TreeMemoryTest, NamespacesAreRightWhateverIsInMemory) {
  std::mt19937_64 random(7);
  std::map<std::string, Held> expected;
  for (int step = 0; step < 1500; ++step) {
    const std::string ns = "salt-" + std::to_string(random() % 100);
    const std::string name = "b" + std::to_string(random() % 3);
    Held& held = expected[ns];
    const auto known = held.branches.find(name);
    if (known == held.branches.end()) {
      ASSERT_OK_ASSIGN(Branch made, store_.CreateBranch(model_, {.name = name, .ns = ns}));
      held.branches[name] = 0;
    } else if (random() % 4 == 0) {
      ASSERT_OK(store_.FindBranch(name, ns)->Drop());
      held.branches.erase(known);
    } else {
      ASSERT_OK_ASSIGN(Branch branch, store_.FindBranch(name, ns));
      Append(branch, 1 + random() % 3);
      known->second = branch.length().value();
    }
    if (step % 500 == 499) Reopen(options_);
    if (step % 50 == 49) ExpectNamespaces(store_, expected);
  }
  // The index names the sums of all of them, and has them right.
  ASSERT_OK(store_.Compact());
  const auto report = store_.Verify(VerifyLevel::kAll);
  ASSERT_OK(report);
  EXPECT_TRUE(report->damages.empty()) << report->damages.front().what;
}

TEST_P(TreeMemoryTest, TheCapOfANamespaceCountsWhatMemoryHadForgotten) {
  for (int i = 0; i < 200; ++i) {
    ASSERT_OK_ASSIGN(Branch branch,
                     store_.CreateBranch(model_, {.name = "x", .ns = std::to_string(i)}));
    Append(branch, 10);
  }
  ASSERT_OK(store_.SetNamespace("7", {.max_bytes = 15 * sizeof(TokenId)}));
  for (const bool reopened : {false, true}) {
    if (reopened) Reopen(options_);
    ASSERT_OK_ASSIGN(Branch other, store_.FindBranch("x", "8"));
    Append(other, 100);
    ASSERT_OK_ASSIGN(Branch capped, store_.FindBranch("x", "7"));
    const Status refused = capped.AppendSync({.tokens = Tokens(6)}).status();
    EXPECT_EQ(StatusCode::kNoSpace, refused.code()) << refused.ToString();
    EXPECT_EQ(StatusReason::kNamespaceQuota, refused.reason());
  }
  ASSERT_OK_ASSIGN(Branch capped, store_.FindBranch("x", "7"));
  Append(capped, 5);
  ASSERT_OK(store_.SetNamespace("7", {}));
  Append(capped, 6);
  const auto all = store_.Namespaces();
  ASSERT_OK(all);
  EXPECT_EQ(200u, all->size());
}

// The replay of a record needs the sums of namespaces that the opening left in the index.
TEST(TreeMemory, AReplayCountsNamespacesThatOnlyTheIndexHas) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.tree_memory_bytes = 0;
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
  std::map<std::string, Held> expected;
  const auto add = [&](const std::string& ns, const std::string& name) {
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model, {.name = name, .ns = ns}));
    ASSERT_OK(branch.AppendSync({.tokens = Tokens(4)}));
    expected[ns].branches[name] = 4;
  };
  for (int i = 0; i < 100; ++i) add(std::to_string(i), "first");
  ASSERT_OK(store.Compact());
  ASSERT_OK(store.Close());
  options.replay_records_max = 1 << 20;  // The index gets nothing more.
  ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
  for (int i = 50; i < 150; ++i) add(std::to_string(i), "second");
  ASSERT_OK_ASSIGN(Branch forked, store.FindBranch("first", "3"));
  ASSERT_OK(forked.ForkAt(2, {.name = "fork", .ns = "4"}));
  expected["4"].branches["fork"] = 0;  // Its tokens are of the other.
  const io::SimWorld killed{std::make_shared<io::SimScheduler>(1), machine.disk->KillClone()};
  options.world = std::make_shared<io::World>(killed.world());
  ASSERT_OK_ASSIGN(const Store again, Store::Open("/store", options));
  EXPECT_GT(again.Metrics().replayed_records, 200u);
  EXPECT_LT(again.Metrics().replayed_records, 400u) << "all of it";
  const auto found = again.Namespaces();
  ASSERT_OK(found);
  ASSERT_EQ(expected.size(), found->size());
  for (const NamespaceInfo& one : *found) {
    EXPECT_EQ(expected[one.name].branches.size(), one.branches) << one.name;
  }
  const auto report = again.Verify(VerifyLevel::kAll);
  ASSERT_OK(report);
  EXPECT_TRUE(report->damages.empty()) << report->damages.front().what;
}

TEST(TreeMemory, ADamagedIndexRecordCostsItsBranch) {
  const auto sim = std::make_shared<io::SimWorld>(io::MakeSimWorld(1));
  Options options = TinyOptions();
  options.tree_memory_bytes = 0;
  options.replay_records_max = 1 << 20;  // One table has all of them.
  options.world = std::make_shared<io::World>(sim->world());
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
    for (int i = 1000; i < 3000; ++i) {
      ASSERT_OK_ASSIGN(Branch branch,
                       store.CreateBranch(model, {.name = "n" + std::to_string(i),
                                                  .durability = Durability::kMemory}));
      ASSERT_OK(branch.AppendSync({.tokens = Tokens(2)}, {.durability = Durability::kMemory}));
    }
    ASSERT_OK(store.Compact());
    ASSERT_OK(store.Close());
  }
  // The largest: what was sealed last may stand in another, which opening reads.
  std::string table;
  uint64_t table_bytes = 0;
  ASSERT_OK_ASSIGN(const auto names, options.world->files->List("/store/tables"));
  for (const std::string& name : names) {
    if (!name.ends_with(".index")) continue;
    ASSERT_OK_ASSIGN(const io::FileInfo info, sim->disk->Info("/store/tables/" + name));
    if (info.bytes <= table_bytes) continue;
    table = "/store/tables/" + name;
    table_bytes = info.bytes;
  }
  ASSERT_FALSE(table.empty());
  ASSERT_OK(sim->disk->FlipBit(table, 500, 3));  // In the first block: the first names.
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  EXPECT_FAILS(store.FindBranch("n1000"), StatusCode::kCorruption, "offset 0");
  EXPECT_FAILS(store.ListBranches("", "", 10), StatusCode::kCorruption, "offset 0");
  EXPECT_FAILS(store.CreateBranch(ModelId{1}, {.name = "n1000"}), StatusCode::kCorruption);
  ASSERT_OK_ASSIGN(const Branch last, store.FindBranch("n2999"));
  EXPECT_EQ(2u, *last.length());
  EXPECT_EQ(Tokens(2), *last.ReadTokens(0, 2));
  EXPECT_OK(store.Close());
}

}  // namespace
}  // namespace cairn::testing
