// SPDX-License-Identifier: Apache-2.0
//
// Looking at the conversation tree in memory: 32,768 named branches, forked from one trunk of 64
// nodes of 16 tokens, each with a token of its own.
#include "engine/tree/memory/tree.h"

#include "base/core/check.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

constexpr uint32_t kBranches = 32'768;
constexpr uint64_t kTrunkNodes = 64, kTokensPerNode = 16;
constexpr uint64_t kLength = kTrunkNodes * kTokensPerNode;
constexpr const char* kNamespace = "tenant";

std::string NameOf(uint32_t i) { return "conversation-" + std::to_string(i); }

class Forest {
 public:
  Forest() {
    auto spec = ModelOfTokenBytes(2048);
    CAIRN_CHECK(spec.ok());
    const uint64_t model = Do(engine::ResolveModel(tree_, *spec)).other;
    uint64_t trunk = Do(engine::ResolveCreate(tree_, model, "trunk", kNamespace)).branch;
    // A branch that forks at its parent's end and appends makes a node below it.
    for (uint64_t i = 0; i < kTrunkNodes; ++i) {
      if (i > 0) {
        const uint64_t at = i * kTokensPerNode;
        trunk = Do(engine::ResolveFork(tree_, trunk, at, "", kNamespace)).branch;
      }
      Append(trunk, kTokensPerNode);
    }
    for (uint32_t i = 0; i < kBranches; ++i) {
      const auto op = engine::ResolveFork(tree_, trunk, kLength, NameOf(i), kNamespace);
      branches_.push_back(Do(op).branch);
      Append(branches_.back(), 1);
    }
  }
  const engine::Tree& tree() const { return tree_; }
  uint64_t branch(uint32_t i) const { return branches_[i]; }

 private:
  engine::Op Do(const Result<engine::Op>& op) {
    CAIRN_CHECK(op.ok());
    engine::Transaction transaction;
    engine::TreeChanges changes(&tree_, &transaction);
    CAIRN_CHECK(changes.Apply(*op).ok());
    transaction.Commit({.segment = 1, .epoch = 1, .offset = 4096, .bytes = 128}, 64);
    return *op;
  }
  void Append(uint64_t branch, uint64_t count) {
    const uint64_t begin = tree_.FindHead(branch)->lengths[0];
    Do(engine::ResolveAppend(tree_, branch,
                             {{engine::kTokenLane, 0, begin, count}, {1, 1, begin, count}}, {}));
  }

  engine::Tree tree_;
  std::vector<uint64_t> branches_;
};

// Made once: it takes longer than what is measured.
const Forest& SharedForest() {
  static const Forest forest;
  return forest;
}

void FindById(::benchmark::State& state) {
  const Forest& forest = SharedForest();
  const std::vector<uint32_t> order = ShuffledOrder(kBranches);
  uint32_t next = 0;
  const Meter meter(&state, 1, 0);
  for (auto _ : state) {
    CAIRN_CHECK(forest.tree().FindHead(forest.branch(order[next])) != nullptr);
    next = (next + 1) % kBranches;
  }
}

void FindByName(::benchmark::State& state, bool there) {
  const Forest& forest = SharedForest();
  std::vector<std::string> names;
  for (const uint32_t i : ShuffledOrder(kBranches)) names.push_back(NameOf(i) + (there ? "" : "x"));
  uint32_t next = 0;
  const Meter meter(&state, 1, 0);
  for (auto _ : state) {
    CAIRN_CHECK((forest.tree().FindHead(kNamespace, names[next]) != nullptr) == there);
    next = (next + 1) % kBranches;
  }
}

// From a branch's node up to the root, node by node.
void WalkAncestry(::benchmark::State& state) {
  const Forest& forest = SharedForest();
  const engine::Head& head = *forest.tree().FindHead(forest.branch(0));
  const Meter meter(&state, kTrunkNodes + 1, 0);
  for (auto _ : state) {
    uint64_t steps = 0;
    const engine::Node* node = forest.tree().OnPath(head.node);
    for (; node != nullptr; node = forest.tree().OnPath(node->parent)) ++steps;
    CAIRN_CHECK(steps == kTrunkNodes + 1);
  }
}

// The input of a restore's plan: the pieces of a lane over the whole path. An item is a piece.
void CollectPieces(::benchmark::State& state) {
  const Forest& forest = SharedForest();
  const engine::Head& head = *forest.tree().FindHead(forest.branch(0));
  const Meter meter(&state, kTrunkNodes + 1, 0);
  for (auto _ : state) {
    const auto pieces =
        engine::CollectLane(forest.tree(), head, engine::kTokenLane, 0, kLength + 1);
    CAIRN_CHECK(pieces.size() == kTrunkNodes + 1);
  }
}

}  // namespace

void RegisterTree() {
  ::benchmark::RegisterBenchmark("tree/find_branch/id", FindById);
  ::benchmark::RegisterBenchmark("tree/find_branch/name", FindByName, true);
  ::benchmark::RegisterBenchmark("tree/find_branch/absent_name", FindByName, false);
  ::benchmark::RegisterBenchmark("tree/walk_ancestry", WalkAncestry);
  ::benchmark::RegisterBenchmark("tree/collect_pieces", CollectPieces);
}

}  // namespace cairn::bench::micro
