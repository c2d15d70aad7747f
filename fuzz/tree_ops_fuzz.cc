// SPDX-License-Identifier: Apache-2.0
//
// A log that says anything under checksums that fit: the operations of a real one, in any order and
// changed, make a tree or are refused; one that is refused leaves no trace; and what the tree then
// says can be read.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/codec/fields.h"
#include "base/core/check.h"
#include "engine/manifest/manifest.h"
#include "engine/tree/memory/op.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"
#include "engine/tree/records/tree_loader.h"
#include "fuzz/input.h"
#include "fuzz/small_store.h"
#include "sim/world.h"
#include "wal/log.h"

using namespace cairn;

namespace {

using Encoded = std::vector<std::byte>;

Encoded Encode(const engine::Op& op) {
  FieldWriter writer;
  engine::EncodeOp(op, &writer);
  return std::move(writer).Take();
}

// The operations in the log of a store that is in use; added by their sequence.
void CollectOps(const io::SimDisk& disk, std::map<uint64_t, std::vector<Encoded>>* ops) {
  io::SimWorld machine = io::CrashWorld(disk, io::CrashChoice::KeepAll());
  io::World world = machine.world();
  const auto manifest = engine::ReadManifest(*world.files, fuzz::kPath);
  CAIRN_CHECK(manifest.ok());
  wal::RecoveryOptions recovery;
  recovery.directory = std::string(fuzz::kPath) + "/log";
  recovery.store = manifest->store;
  recovery.first_segment = manifest->log_start_segment;
  recovery.read_only = true;
  const auto recovered = wal::Recover(world, recovery, [&](const wal::RecordView& record) {
    const auto decoded = engine::DecodeRecord(record);
    CAIRN_CHECK(decoded.ok());
    std::vector<Encoded>& encoded = (*ops)[record.sequence];
    encoded.clear();
    for (const engine::Op& op : *decoded) encoded.push_back(Encode(op));
    return Status::Ok();
  });
  CAIRN_CHECK(recovered.ok());
}

bool Apply(engine::Tree& tree, const engine::Op& op) {
  engine::Transaction transaction;
  engine::TreeChanges changes(&tree, &transaction);
  if (!changes.Apply(op).ok()) return false;
  transaction.Commit({.segment = 1, .epoch = 1, .offset = 4096, .bytes = 1 << 20}, 64);
  return true;
}

// Ops that the store above did not use: an eviction, a Fill of evicted KV, and a join.
void AddOps(std::vector<Encoded>* ops) {
  engine::Tree tree;
  for (const Encoded& op : *ops) CAIRN_CHECK(Apply(tree, *engine::DecodeOp(op)));
  const auto add = [&](const Result<engine::Op>& op) {
    CAIRN_CHECK(op.ok() && Apply(tree, *op));
    ops->push_back(Encode(*op));
  };
  const engine::Head* const head = tree.FindHead("", "second");
  CAIRN_CHECK(head != nullptr);
  engine::EvictNeeds missing;
  add(ResolveEvict(tree, head->id, 3, &missing));
  std::vector<engine::LaneRange> lanes;
  for (const auto& hole : FindHoles(tree, *head, 1, 0, head->lengths[1])) {
    lanes.push_back({.lane = 1, .strip = 0, .begin = hole.begin, .count = hole.end - hole.begin});
  }
  CAIRN_CHECK(!lanes.empty());
  add(ResolveFill(tree, head->id, lanes));
  const engine::Head* const fork = tree.FindHead("", "fork");
  CAIRN_CHECK(fork != nullptr);
  const uint64_t above = tree.FindNode(fork->node)->parent;
  uint64_t other = 0;  // Another branch that ends on the node that the fork left.
  tree.VisitNames({}, [&](const engine::Tree::NameKey& name) {
    if (tree.FindHead(std::get<2>(name))->node == above) other = std::get<2>(name);
    return true;
  });
  add(ResolveDrop(tree, other));
  add(ResolveJoin(tree, fork->node));
  // A later description, a fork of a node, and approximate KV on top of exact KV.
  ModelSpec described = *tree.FindModel(head->model);
  described.groups[0].planes[0].rotary.width = described.groups[0].planes[0].row_bytes / 2;
  add(ResolveKnownModel(tree, head->model, described));
  const auto twin = ResolveForkOfNode(tree, fork->node, fork->lengths[0], "twin", "");
  add(twin);
  const uint64_t length = fork->lengths[0], kv = fork->lengths[1];
  auto blended = ResolveAppend(
      tree, twin->branch, {{engine::kTokenLane, 0, length, 4}, {1, 1, kv, length + 4 - kv}}, {});
  CAIRN_CHECK(blended.ok());
  blended->exact = false;
  add(blended);
}

std::vector<Encoded> MakeOps() {
  std::map<uint64_t, std::vector<Encoded>> by_sequence;
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = fuzz::StoreOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.evict = Evict::kBranches;
  {
    auto store = Store::Open(fuzz::kPath, options);
    CAIRN_CHECK(store.ok());
    const auto model = store->RegisterModel(fuzz::Model());
    CAIRN_CHECK(model.ok());
    CAIRN_CHECK(store->SetNamespace("tenant", {.max_bytes = 1 << 20, .evict = Evict::kKv}).ok());
    for (uint64_t id = 1; id <= 3; ++id) fuzz::Grow(*store, *model, id, 20 * id);
    auto first = store->FindBranch("1");
    CAIRN_CHECK(first.ok());
    auto fork = first->ForkAt(7, {.name = "fork", .keep = {.priority = 3}});
    CAIRN_CHECK(fork.ok() && first->ForkAt(12, {.ns = "tenant"}).ok());
    const std::vector<TokenId> tokens = {1, 2, 3, 4, 5};
    const SamplerState sampler{.generator = GeneratorKind::kPhilox, .philox_seed = 7};
    const AppMetadata metadata{.content_type = "text/plain", .bytes = {std::byte{1}}};
    const std::vector<ContentSpan> spans = {{.begin = 8, .end = 10, .atomic = true}};
    const Delta delta{.tokens = tokens, .sampler = &sampler, .metadata = &metadata, .spans = spans};
    CAIRN_CHECK(fork->AppendSync(delta).ok());
    fuzz::Kv kv(12);
    const KvView view = kv.View(7);
    CAIRN_CHECK(fork->Fill(view).ok());
    CAIRN_CHECK(store->Flush().ok());
    CollectOps(*machine.disk, &by_sequence);
    CAIRN_CHECK(store->Compact().ok());
    CAIRN_CHECK(store->FindBranch("3")->Rewind(50, Durability::kPower).ok());
    CAIRN_CHECK(store->FindBranch("2")->Rename("second", Durability::kPower).ok());
    CAIRN_CHECK(first->SetKeep({.pinned = true}, Durability::kPower).ok());
    CAIRN_CHECK(first->Drop(Durability::kPower).ok());
    CAIRN_CHECK(store->Flush().ok());
    CollectOps(*machine.disk, &by_sequence);
    CAIRN_CHECK(store->Compact().ok());
    CollectOps(*machine.disk, &by_sequence);
  }
  std::vector<Encoded> ops;
  for (auto& [sequence, encoded] : by_sequence) {
    for (Encoded& op : encoded) ops.push_back(std::move(op));
  }
  AddOps(&ops);
  std::map<engine::OpKind, int> kinds;
  for (const Encoded& op : ops) ++kinds[engine::DecodeOp(op)->kind];
  using engine::OpKind;
  for (const OpKind kind :
       {OpKind::kModel, OpKind::kCreate, OpKind::kFork, OpKind::kAppend, OpKind::kRewind,
        OpKind::kRename, OpKind::kDrop, OpKind::kSeal, OpKind::kEvict, OpKind::kFill, OpKind::kKeep,
        OpKind::kNamespace, OpKind::kJoin}) {
    CAIRN_CHECK(kinds[kind] > 0);
  }
  return ops;
}

class Replay {
 public:
  explicit Replay(std::vector<Encoded> ops) : ops_(std::move(ops)) {}

  // The operation that is next, another one, or a changed one.
  void Step(fuzz::Input& input) {
    const uint8_t how = input.Take<uint8_t>();
    Encoded bytes = ops_[(how < 192 ? next_++ : input.Take<uint8_t>()) % ops_.size()];
    for (uint8_t changes = how < 128 ? 0 : how % 8; changes > 0; --changes) {
      const uint64_t at = input.Take<uint16_t>() % bytes.size();
      bytes[at] ^= input.Take<std::byte>();
    }
    const auto op = engine::DecodeOp(bytes);
    if (!op.ok()) return;
    ++location_.offset;
    if (op->kind == engine::OpKind::kPart) {
      engine::Part part{location_, op->lanes, {}};
      part.prefix_bytes.assign(op->lanes.size(), location_.bytes);
      parts_.push_back(std::move(part));
      return;
    }
    const engine::TreeCounts before = tree_.counts();
    const uint64_t next_id = tree_.next_id();
    bool applied = false;
    {
      engine::Transaction transaction;
      engine::TreeChanges changes(&tree_, &transaction);
      const Status status = changes.Apply(*op, std::exchange(parts_, {}));
      CAIRN_CHECK(status.ok() || status.code() == StatusCode::kCorruption ||
                  status.code() == StatusCode::kUnsupportedFormat);
      applied = status.ok();
      if (applied) transaction.Commit(location_, location_.bytes);
    }
    CAIRN_CHECK(applied || (tree_.counts() == before && tree_.next_id() == next_id));
    std::unique_lock lock(mutex_);
    CAIRN_CHECK(DecideAll(&tree_, &lock).ok());
  }

  void Look() const {
    std::vector<uint64_t> branches;
    tree_.VisitNames({}, [&](const engine::Tree::NameKey& name) {
      branches.push_back(std::get<2>(name));
      return true;
    });
    for (const uint64_t branch : branches) {
      const engine::Head* const head = tree_.FindHead(branch);
      CAIRN_CHECK(head != nullptr);
      static_cast<void>(CollectPath(tree_, *head));
      for (uint32_t lane = 0; lane < head->lengths.size(); ++lane) {
        uint64_t at = 0;
        for (const auto& piece : CollectLane(tree_, *head, lane, 0, head->lengths[lane])) {
          static_cast<void>(piece);
          ++at;
        }
        CAIRN_CHECK(at <= head->lengths[lane]);
        static_cast<void>(FindHoles(tree_, *head, lane, 0, head->lengths[lane]));
      }
      static_cast<void>(CollectSpans(tree_, *head, 0, UINT64_MAX));
      static_cast<void>(FindMark(tree_, *head, true, UINT64_MAX));
    }
  }

 private:
  const std::vector<Encoded> ops_;
  size_t next_ = 0;
  engine::Tree tree_;
  std::mutex mutex_;
  std::vector<engine::Part> parts_;
  wal::Location location_{.segment = 1, .epoch = 1, .offset = 4096, .bytes = 1 << 20};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const std::vector<Encoded> ops = MakeOps();
  constexpr size_t kStepsMax = 200;
  fuzz::Input input(data, bytes);
  Replay replay(ops);
  for (size_t step = 0; step < kStepsMax && !input.empty(); ++step) replay.Step(input);
  replay.Look();
  return 0;
}
