// SPDX-License-Identifier: Apache-2.0
//
// Property: branches are cheap, independent heads on shared content. A fork at any position shows
// what its source had there, whatever becomes of its source; names are unique in their namespace;
// what nobody reaches is freed.
// Method: small trees in every world, looked at before and after reopening.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class BranchTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    model_ = TinyModel();
    id_ = Register(model_);
    chat_ = Create(id_, "chat");
  }
  Branch Fork(const Branch& from, uint64_t position, const std::string& name) {
    auto fork = from.ForkAt(position, {.name = name});
    EXPECT_OK(fork);
    return fork.ok() ? *fork : Branch();
  }
  uint64_t nodes() const { return store_.Metrics().nodes; }
  ModelSpec model_;
  ModelId id_{};
  Branch chat_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, BranchTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(BranchTest, ForkAtEveryPosition) {
  for (uint64_t begin = 0; begin < 12; begin += 4) ASSERT_OK(AppendSome(chat_, model_, begin, 4));
  for (uint64_t position = 0; position <= 12; ++position) {
    Branch fork = Fork(chat_, position, "fork" + std::to_string(position));
    EXPECT_EQ(position, *fork.length());
    EXPECT_TRUE(HasKv(fork, model_, 0, position));
    ASSERT_OK(AppendSome(fork, model_, position, 3, 100 + position));
  }
  EXPECT_FAILS(chat_.ForkAt(13, {}), StatusCode::kInvalidArgument, "12 tokens");
  Reopen();
  chat_ = Find("chat");
  EXPECT_TRUE(HasKv(chat_, model_, 0, 12));
  for (uint64_t position = 0; position <= 12; ++position) {
    const Branch fork = Find("fork" + std::to_string(position));
    EXPECT_EQ(position + 3, *fork.length());
    EXPECT_TRUE(HasKv(fork, model_, 0, position));
    EXPECT_TRUE(HasKv(fork, model_, position, position + 3, 100 + position));
  }
}

TEST_P(BranchTest, GrandchildrenOutliveTheirAncestors) {
  ASSERT_OK(AppendSome(chat_, model_, 0, 10));
  Branch child = Fork(chat_, 7, "child");
  ASSERT_OK(AppendSome(child, model_, 7, 6, 20));
  Branch grandchild = Fork(child, 9, "grandchild");
  ASSERT_OK(AppendSome(grandchild, model_, 9, 2, 30));
  Branch cousin = Fork(grandchild, 3, "cousin");
  EXPECT_EQ(3u, nodes());
  ASSERT_OK(chat_.Drop());
  ASSERT_OK(child.Drop());
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(HasKv(grandchild, model_, 0, 7));
    EXPECT_TRUE(HasKv(grandchild, model_, 7, 9, 20));
    EXPECT_TRUE(HasKv(grandchild, model_, 9, 11, 30));
    EXPECT_TRUE(HasKv(cousin, model_, 0, 3));
    ASSERT_OK_ASSIGN(const std::vector<PathStep> path, grandchild.Path());
    ASSERT_EQ(3u, path.size());
    EXPECT_EQ(0u, path[0].begin);
    EXPECT_EQ(7u, path[0].end);
    EXPECT_EQ(7u, path[1].begin);
    EXPECT_EQ(9u, path[1].end);
    EXPECT_EQ(11u, path[2].end);
    EXPECT_EQ(path[0].node, path[1].parent);
    EXPECT_EQ(path[1].node, path[2].parent);
    EXPECT_EQ(grandchild.id(), path[2].owner);
    Reopen();
    grandchild = Find("grandchild");
    cousin = Find("cousin");
  }
  EXPECT_EQ(3u, nodes());
  ASSERT_OK(grandchild.Drop());
  EXPECT_EQ(1u, nodes()) << "the cousin needs the root node only";
  ASSERT_OK(cousin.Drop());
  EXPECT_EQ(0u, nodes());
  EXPECT_EQ(0u, store_.Metrics().branches);
}

// Only the owner extends a node, and only at its end.
TEST_P(BranchTest, TheOwnerRule) {
  ASSERT_OK(AppendSome(chat_, model_, 0, 5));
  Branch fork = Fork(chat_, 5, "fork");
  EXPECT_EQ(1u, nodes()) << "a fork alone makes no node";
  ASSERT_OK(AppendSome(chat_, model_, 5, 5));
  EXPECT_EQ(1u, nodes()) << "the owner goes on in place";
  ASSERT_OK(AppendSome(fork, model_, 5, 5, 20));
  EXPECT_EQ(2u, nodes());
  EXPECT_TRUE(HasKv(chat_, model_, 0, 10));
  EXPECT_TRUE(HasKv(fork, model_, 0, 5));
  EXPECT_TRUE(HasKv(fork, model_, 5, 10, 20));
}

TEST_P(BranchTest, RewindInPlaceOrByMovingTheHead) {
  ASSERT_OK(AppendSome(chat_, model_, 0, 10));
  ASSERT_OK(chat_.Rewind(8));
  ASSERT_OK(AppendSome(chat_, model_, 8, 2, 11));
  EXPECT_EQ(1u, nodes()) << "nobody else reaches beyond, so it is cut in place";
  Branch fork = Fork(chat_, 9, "fork");
  ASSERT_OK(chat_.Rewind(4));
  EXPECT_TRUE(HasKv(fork, model_, 0, 8));
  EXPECT_TRUE(HasKv(fork, model_, 8, 9, 11));
  ASSERT_OK(AppendSome(chat_, model_, 4, 3, 12));
  EXPECT_EQ(2u, nodes()) << "the fork keeps what it reaches";
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(HasKv(fork, model_, 0, 8));
    EXPECT_TRUE(HasKv(fork, model_, 8, 9, 11));
    EXPECT_TRUE(HasKv(chat_, model_, 0, 4));
    EXPECT_TRUE(HasKv(chat_, model_, 4, 7, 12));
    Reopen();
    chat_ = Find("chat");
    fork = Find("fork");
  }
  ASSERT_OK(chat_.Rewind(7)) << "to where it is";
  EXPECT_FAILS(chat_.Rewind(8), StatusCode::kInvalidArgument, "7 tokens");
  ASSERT_OK(chat_.Rewind(0));
  EXPECT_EQ(0u, *chat_.length());
  ASSERT_OK(AppendSome(chat_, model_, 0, 2, 13));
  EXPECT_TRUE(HasKv(chat_, model_, 0, 2, 13));
}

TEST_P(BranchTest, RewindAcrossNodes) {
  ASSERT_OK(AppendSome(chat_, model_, 0, 10));
  Branch child = Fork(chat_, 6, "child");
  ASSERT_OK(AppendSome(child, model_, 6, 6, 20));
  for (const uint64_t length : {9u, 6u, 5u, 0u}) {
    Branch probe = Fork(child, *child.length(), "");
    ASSERT_OK(probe.Rewind(length));
    EXPECT_TRUE(HasKv(probe, model_, 0, std::min<uint64_t>(length, 6)));
    if (length > 6) {
      EXPECT_TRUE(HasKv(probe, model_, 6, length, 20));
    }
    ASSERT_OK(AppendSome(probe, model_, length, 2, 30));
    EXPECT_TRUE(HasKv(probe, model_, length, length + 2, 30));
    ASSERT_OK(probe.Drop());
  }
  EXPECT_TRUE(HasKv(child, model_, 6, 12, 20));
  ASSERT_OK(child.Rewind(3));
  EXPECT_EQ(1u, nodes()) << "the child's node is gone";
}

TEST_P(BranchTest, SpeculativeDecodingLeavesNoTrail) {
  const int steps = GetParam() == "memory" ? 100'000 : 1'000;
  Branch branch = Create(Register(TokenModel()), "speculative");
  const std::vector<TokenId> tokens = Tokens(4);
  uint64_t length = 0;
  for (int i = 0; i < steps; ++i) {
    AppendOptions options;
    options.durability = Durability::kMemory;
    ASSERT_OK(branch.AppendSync(MakeDelta(tokens), options));
    ASSERT_OK(branch.Rewind(length + 2, Durability::kMemory));
    length += 2;
  }
  EXPECT_EQ(length, *branch.length());
  EXPECT_LE(nodes(), 2u);
  Reopen();
  EXPECT_LE(nodes(), 2u);
  branch = Find("speculative");
  EXPECT_EQ(length, *branch.length());
  ASSERT_OK_ASSIGN(const std::vector<TokenId> read, branch.ReadTokens(length - 100, length));
  for (size_t i = 0; i < read.size(); ++i) ASSERT_EQ(tokens[i % 2], read[i]);
}

TEST_P(BranchTest, AForkTakesAtMost256BytesOfLog) {
  ASSERT_OK(AppendSome(chat_, model_, 0, 100));
  ASSERT_OK(store_.Flush());
  const uint64_t before = store_.Metrics().log_bytes_written;
  constexpr int kForks = 1000;
  for (int i = 0; i < kForks; ++i) {
    ASSERT_OK(chat_.ForkAt(50, {.name = "", .ns = "", .durability = Durability::kMemory}));
  }
  ASSERT_OK(store_.Flush());
  const uint64_t each = (store_.Metrics().log_bytes_written - before) / kForks;
  EXPECT_LE(each, 256u + 16) << "and the padding of the groups they share";
  EXPECT_EQ(1u, nodes());
}

TEST_P(BranchTest, NamesAreUniqueInTheirNamespace) {
  const auto create = [&](const std::string& name, const std::string& ns) {
    return store_.CreateBranch(id_, {.name = name, .ns = ns});
  };
  EXPECT_FAILS(create("chat", ""), StatusCode::kAlreadyExists, "\"chat\"");
  ASSERT_OK(create("chat", "a"));
  EXPECT_FAILS(create("chat", "a"), StatusCode::kAlreadyExists, "namespace \"a\"");
  EXPECT_FAILS(chat_.ForkAt(0, {.name = "chat", .ns = "a"}), StatusCode::kAlreadyExists);
  ASSERT_OK(create("", "a"));
  ASSERT_OK(create("", "a")) << "any number may be unnamed";
  ASSERT_OK(create(std::string(256, 'n'), std::string(256, 's')));
  EXPECT_FAILS(create(std::string(257, 'n'), ""), StatusCode::kInvalidArgument, "257");
  EXPECT_FAILS(create("", std::string(257, 's')), StatusCode::kInvalidArgument, "257");
  EXPECT_FAILS(create(std::string("a\0b", 3), ""), StatusCode::kInvalidArgument, "NUL");
  EXPECT_FAILS(create("x", std::string("a\0b", 3)), StatusCode::kInvalidArgument, "NUL");

  ASSERT_OK(chat_.Rename("renamed"));
  EXPECT_FAILS(store_.FindBranch("chat"), StatusCode::kNotFound, "chat");
  EXPECT_EQ(chat_.id(), Find("renamed").id());
  ASSERT_OK_ASSIGN(Branch again, create("chat", ""));
  EXPECT_FAILS(again.Rename("renamed"), StatusCode::kAlreadyExists);
  ASSERT_OK(again.Rename("chat")) << "its own name";
  ASSERT_OK(again.Drop());
  ASSERT_OK(create("chat", ""));
  EXPECT_EQ((std::vector<std::string>{"", "a", std::string(256, 's')}), NamesOf(store_));
  Reopen();
  EXPECT_EQ(chat_.id(), Find("renamed").id());
  EXPECT_EQ((std::vector<std::string>{"", "a", std::string(256, 's')}), NamesOf(store_));
}

TEST_P(BranchTest, ListingByPrefixInPages) {
  const std::string ns = "tenant";
  std::vector<std::string> want;
  const auto create = [&](const std::string& name, const std::string& in) {
    ASSERT_OK(
        store_.CreateBranch(id_, {.name = name, .ns = in, .durability = Durability::kMemory}));
  };
  for (int i = 0; i < 25; ++i) {
    const std::string name = "a" + std::string(1, static_cast<char>('a' + i));
    create(name, ns);
    want.push_back(name);
  }
  create("b", ns);
  create("a", ns + "2");
  create("", ns);
  create("", ns);
  for (const size_t limit : {1u, 4u, 25u, 100u}) {
    std::vector<std::string> got;
    std::string cursor;
    do {
      ASSERT_OK_ASSIGN(const BranchPage page, store_.ListBranches(ns, "a", limit, cursor));
      EXPECT_LE(page.branches.size(), limit);
      for (const BranchInfo& info : page.branches) got.push_back(info.name);
      cursor = page.cursor;
    } while (!cursor.empty());
    EXPECT_EQ(want, got) << limit;
  }
  ASSERT_OK_ASSIGN(const BranchPage all, store_.ListBranches(ns, "", 1000));
  ASSERT_EQ(28u, all.branches.size());
  EXPECT_EQ("", all.branches[0].name);
  EXPECT_EQ("", all.branches[1].name);
  EXPECT_LT(all.branches[0].id, all.branches[1].id);
  EXPECT_EQ("aa", all.branches[2].name);
  size_t paged = 0;
  std::string cursor;
  do {
    ASSERT_OK_ASSIGN(const BranchPage page, store_.ListBranches(ns, "", 3, cursor));
    paged += page.branches.size();
    cursor = page.cursor;
  } while (!cursor.empty());
  EXPECT_EQ(28u, paged);
  EXPECT_TRUE(store_.ListBranches("nobody", "", 10)->branches.empty());
  EXPECT_FAILS(store_.ListBranches(ns, "", 0), StatusCode::kInvalidArgument);
}

TEST_P(BranchTest, InfoAndTimes) {
  ASSERT_OK_ASSIGN(const BranchInfo fresh, chat_.Info());
  EXPECT_EQ("chat", fresh.name);
  EXPECT_EQ(id_, fresh.model);
  EXPECT_EQ(chat_.id(), fresh.id);
  EXPECT_GT(fresh.created_at_ns, 0u);
  world_->world().scheduler->Sleep(2'000'000);
  ASSERT_OK(AppendSome(chat_, model_, 0, 2));
  Reopen();
  chat_ = Find("chat");
  ASSERT_OK_ASSIGN(const BranchInfo later, chat_.Info());
  EXPECT_EQ(fresh.created_at_ns, later.created_at_ns);
  EXPECT_GT(later.updated_at_ns, later.created_at_ns);
  EXPECT_EQ(2u, later.length);
  EXPECT_EQ((std::vector<uint64_t>{2}), later.kv_lengths);
  ASSERT_OK_ASSIGN(Branch same, store_.GetBranch(chat_.id()));
  EXPECT_EQ(2u, *same.length());
}

}  // namespace
}  // namespace cairn::testing
